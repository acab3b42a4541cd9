import { ISample, IShareUse } from '../../src/api/sample';
import { History } from '../../src/history/history';
import { coarser, rates, ShareHistory } from '../../src/history/share-history';
import { share } from '../share';

const sample = (time: number, ...shares: IShareUse[]): ISample => ({
  time,
  gpus: new Map(),
  shares: new Map(shares.map(one => [one.uuid, one]))
});

describe('rates', () => {
  test('are parts of the time; an overrun counts as its own', () => {
    const after = share({
      guaranteed: 200_000,
      overrun: 50_000,
      borrowed: 100_000,
      idle: 50_000,
      waited: 300_000,
      throttled: 1000
    });
    expect(rates(share(), after, 1e6)).toEqual({
      guaranteed: 0.25,
      borrowed: 0.1,
      idle: 0.05,
      waiting: 0.3,
      throttled: 0.001
    });
  });

  test('are unknown without an earlier sample or without time between', () => {
    expect(rates(null, share(), 1e6)).toBeNull();
    expect(rates(share(), share(), 0)).toBeNull();
    expect(rates(share(), share(), -1)).toBeNull();
  });

  test('count totals that began again from 0', () => {
    const before = share({ guaranteed: 900, waited: 500, switching: 9 });
    const found = rates(before, share({ guaranteed: 100, waited: 200 }), 1000);
    expect(found).toMatchObject({ guaranteed: 0.1, waiting: 0.2 });
  });

  test('treat a refund as no restart, and are never below 0', () => {
    const before = share({ guaranteed: 900, waited: 500 });
    const found = rates(before, share({ guaranteed: 850, waited: 600 }), 1000);
    expect(found).toMatchObject({ guaranteed: 0, waiting: 0.1 });
  });

  test('are never more than all of the time', () => {
    const found = rates(share(), share({ guaranteed: 1500, waited: 500, throttled: 900 }), 1000);
    expect(found).toMatchObject({ guaranteed: 0.75, waiting: 0.25, throttled: 0.25 });
  });
});

describe('history of shares', () => {
  test('each moment has the rates of the time before it; a gap has none', () => {
    const history = new ShareHistory(10);
    history.push(sample(1, share()), 1);
    history.push(sample(2, share({ guaranteed: 500_000 })), 1);
    history.push(sample(20, share({ guaranteed: 900_000 })), 1);
    const moments = history.moments('GPU-1', 100, 20);
    expect(moments.map(({ time, rates }) => [time, rates?.guaranteed])).toEqual([
      [1, undefined],
      [2, 0.5],
      [20, undefined]
    ]);
    expect(history.latest('GPU-1')?.time).toBe(20);
    expect(history.moments('GPU-1', 5, 20).length).toBe(1);
  });

  test('current use is that of the last second, never across a gap', () => {
    const history = new ShareHistory(100);
    expect(history.rates('GPU-1')).toBeNull();
    history.push(sample(1, share()), 0.25);
    expect(history.rates('GPU-1')).toBeNull();
    for (const [time, guaranteed] of [
      [1.25, 250_000],
      [1.5, 250_000],
      [1.75, 500_000],
      [2, 500_000],
      [2.25, 500_000]
    ]) {
      history.push(sample(time, share({ guaranteed })), 0.25);
    }
    expect(history.rates('GPU-1')!.guaranteed).toBe(0.25); // since 1.25
    history.push(sample(9, share({ guaranteed: 900_000 })), 0.25);
    expect(history.rates('GPU-1')).toBeNull();
    history.push(sample(9.25, share({ guaranteed: 1_000_000 })), 0.25);
    expect(history.rates('GPU-1')!.guaranteed).toBe(0.4); // since 9
    history.push(sample(9.5, share({ guaranteed: 1_000_000 })), 0.25);
    expect(history.rates('GPU-1')!.guaranteed).toBe(0.2);
  });

  test('a share is in use if it has memory or had time just now', () => {
    const history = new ShareHistory(100);
    expect(history.isUsed('GPU-1')).toBe(false);
    history.push(sample(1, share()), 1);
    history.push(sample(2, share({ waited: 1 })), 1);
    expect(history.isUsed('GPU-1')).toBe(false);
    history.push(sample(3, share({ waited: 1, borrowed: 5 })), 1);
    expect(history.isUsed('GPU-1')).toBe(true);
    history.push(sample(4, share({ waited: 1, borrowed: 5 })), 1);
    expect(history.isUsed('GPU-1')).toBe(false);
    history.push(sample(5, share({ waited: 1, borrowed: 5, memoryUsed: 1 })), 1);
    expect(history.isUsed('GPU-1')).toBe(true);
  });

  test('with rare samples, current use is that since the sample before', () => {
    const history = new ShareHistory(100);
    history.push(sample(10, share()), 5);
    history.push(sample(15, share({ idle: 5_000_000 })), 5);
    history.push(sample(20, share({ idle: 5_000_000 })), 5);
    expect(history.rates('GPU-1')!.idle).toBe(0);
  });

  test('keeps the newest of any number', () => {
    const history = new ShareHistory(4);
    for (let time = 1; time <= 50; time++) {
      history.push(sample(time, share()), 1);
    }
    expect(history.moments('GPU-1', 1000, 50).map(({ time }) => time)).toEqual([47, 48, 49, 50]);
  });

  test('lists adjustments with reasons, newest first, up to a limit', () => {
    const history = new ShareHistory(100);
    history.push(sample(1, share({ effective: 250 })), 1);
    history.push(sample(2, share({ effective: 400, reason: 'lent to it' })), 1);
    history.push(sample(3, share({ effective: 400, reason: 'lent to it' })), 1);
    history.push(sample(4, share({ effective: 250, reason: 'taken back' })), 1);
    expect(history.adjustments('GPU-1')).toEqual([
      { time: 4, from: 400, to: 250, reason: 'taken back' },
      { time: 2, from: 250, to: 400, reason: 'lent to it' }
    ]);
    for (let time = 5; time < 90; time++) {
      history.push(sample(time, share({ effective: 200 + (time % 2) })), 1);
    }
    expect(history.adjustments('GPU-1').length).toBe(20);
  });

  test('steps in one direction for one reason, close in time, are one adjustment', () => {
    const history = new ShareHistory(100);
    const step = (time: number, effective: number, reason: string) =>
      history.push(sample(time, share({ effective, reason })), 1);
    step(1, 250, '');
    step(2, 300, 'lent to it');
    step(3, 350, 'lent to it');
    step(4, 320, 'lent to it'); // the other way
    step(5, 300, 'taken back'); // another reason
    step(9, 280, 'taken back'); // later
    expect(history.adjustments('GPU-1').map(({ from, to }) => [from, to])).toEqual([
      [300, 280],
      [320, 300],
      [350, 320],
      [250, 350]
    ]);
    expect(history.adjustments('GPU-1')[3].time).toBe(3);
  });

  test('a longer version of a reason belongs to the same adjustment', () => {
    const history = new ShareHistory(100);
    const step = (time: number, effective: number, reason: string) =>
      history.push(sample(time, share({ effective, reason })), 1);
    step(1, 900, 'Grew.');
    step(2, 500, 'Gave back.');
    step(3, 500, 'Gave back. Nothing is free.');
    step(10, 500, 'Gave back.');
    expect(history.adjustments('GPU-1')).toEqual([
      { time: 2, from: 900, to: 500, reason: 'Gave back.' }
    ]);
  });

  test('a reason without a change is listed, its end is not', () => {
    const history = new ShareHistory(100);
    history.push(sample(1, share()), 1);
    history.push(sample(2, share({ reason: 'nothing is free' })), 1);
    history.push(sample(3, share()), 1);
    expect(history.adjustments('GPU-1')).toEqual([
      { time: 2, from: 250, to: 250, reason: 'nothing is free' }
    ]);
  });

  test('a removed share is forgotten, one that misses a sample is not', () => {
    const history = new ShareHistory(10);
    history.push(sample(1, share()), 1);
    history.push(sample(2), 1);
    expect(history.latest('GPU-1')).not.toBeNull();
    history.push(sample(10), 1);
    expect(history.latest('GPU-1')).toBeNull();
    expect(history.adjustments('GPU-1')).toEqual([]);
    expect(history.moments('GPU-1', 100, 10)).toEqual([]);
  });

  test('the page keeps it, and starts again with the server’s history', () => {
    const history = new History(10);
    history.push(sample(1, share()));
    expect(history.shares.latest('GPU-1')?.use).toEqual(share());
    history.push(sample(1, share({ waited: 5 }))); // not newer
    expect(history.shares.latest('GPU-1')?.use.waited).toBe(0);
    history.reset(1, []);
    expect(history.shares.latest('GPU-1')).toBeNull();
  });
});

describe('old moments', () => {
  const hour = (interval: number) => {
    const history = new ShareHistory(36_000);
    let used = 0;
    for (let i = 0; i * interval <= 3600; i++) {
      used += i % 7 === 0 ? interval * 1e6 : 0; // works at some moments and not at others
      history.push(sample(1000 + i * interval, share({ guaranteed: used })), interval);
    }
    return { history, used };
  };

  test('are joined, in bounded number, and keep their total time', () => {
    for (const interval of [0.1, 1]) {
      const { history, used } = hour(interval);
      const found = history.moments('GPU-1', 3600, 4600);
      expect(found.length).toBeLessThan(120 / interval + 1080 + 240 + 300);
      const worked = found
        .slice(1)
        .reduce((sum, one, i) => sum + one.rates!.guaranteed * (one.time - found[i].time), 0);
      // The first sample's total is of before it.
      expect(worked).toBeCloseTo(used / 1e6 - interval, 3);
      const late = found.filter(({ time }) => time > 4600 - 100);
      expect(late.length).toBeGreaterThanOrEqual(100 / interval - 1);
    }
  });

  test('keep their gaps', () => {
    const moment = (time: number, known: boolean) => ({
      time,
      use: share(),
      rates: known ? rates(share(), share({ idle: 500_000 }), 1e6) : null
    });
    const joined = coarser([
      moment(0, false),
      moment(1, true),
      moment(2, true),
      moment(3, true),
      moment(5, false),
      moment(6, true),
      moment(7, true),
      moment(5000, false)
    ]);
    expect(joined.map(({ time, rates }) => [time, rates?.idle ?? null])).toEqual([
      [0, null],
      [3, 0.5],
      [5, null],
      [7, 0.5],
      [5000, null]
    ]);
  });

  test('a coarse point of the server has rates from the one before it', () => {
    const history = new ShareHistory(10);
    history.push(sample(1, share()), 1);
    history.push({ ...sample(101, share({ idle: 50_000_000 })), since: 1 }, 1);
    expect(history.latest('GPU-1')?.rates?.idle).toBe(0.5);
  });
});
