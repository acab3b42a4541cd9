/** Notices about waits, and the tab that shows them. */
import { IView, parseView } from '../../src/api/view';
import { claim, claimAlone, patience } from '../../src/notices/claim';
import { follow, IFollowed, INotice } from '../../src/notices/notices';
import { isWorthShowing } from '../../src/notices/visibility';
import { view } from '../server';

interface IState {
  phase: string;
  requested?: number;
  attached?: number;
  generation?: number;
  instance?: string;
  gpus?: [string, string][];
  /** Why the GPU of a worker does not work. */
  away?: string;
  giveBackAt?: number;
}

const now = ({
  phase,
  requested = 2000,
  attached = 0,
  generation = 1,
  instance = 'one',
  gpus = [],
  away,
  giveBackAt
}: IState): IView =>
  parseView(
    view({
      instance,
      version: 1,
      phase,
      settled: phase !== 'Waiting' && phase !== 'Attaching',
      amounts: { requested, allocated: attached, attached, draining: 0 },
      requested: { generation, milli: requested },
      allocated:
        giveBackAt === undefined ? null : { limit: { source: { kind: 'User' }, giveBackAt } },
      gpus: gpus.map(([uuid, state], index) => ({
        ...{ uuid, index, state, model: 'H100', memory: 1, milli: 1000, users: [] }
      })),
      workers: [
        {
          ...{ id: 'w1', node: 'n2', relation: 'other', stage: 'ready', milli: 1000 },
          gpus: [{ uuid: 'far', milli: 1000, ...(away ? { health: away } : {}) }]
        }
      ]
    }),
    'view'
  );

/** The notices while these states follow each other, a second apart. */
function noticesOf(...states: IState[]): string[] {
  let before: IFollowed | null = null;
  const all: INotice[] = [];
  states.forEach((state, i) => {
    const { followed, notices } = follow(before, now(state), i * 1000);
    before = followed;
    all.push(...notices);
  });
  expect(new Set(all.map(({ id }) => id)).size).toBe(all.length);
  return all.map(({ kind, waited }) => `${kind} ${waited / 1000}`);
}

const waiting = { phase: 'Waiting' };

test('GPUs that came cause a notice, whatever phases are between', () => {
  const attaching = { phase: 'Attaching' };
  expect(noticesOf(waiting, waiting, attaching, { phase: 'Ready', attached: 2000 })).toEqual([
    'came 3'
  ]);
});

test('a part causes a notice, then the rest', () => {
  const some = { ...waiting, attached: 1000 };
  const rest = { phase: 'Ready', attached: 2000 };
  expect(noticesOf(waiting, { phase: 'Attaching' }, some, some, rest)).toEqual([
    'partly 2',
    'came 4'
  ]);
});

test('a wait that cannot end causes a notice', () => {
  expect(noticesOf(waiting, { phase: 'Refused' })).toEqual(['cannot 1']);
});

test('the user’s own changes cause no notice', () => {
  const kept = { phase: 'Ready', requested: 1000, attached: 1000, generation: 2 };
  expect(noticesOf({ ...waiting, attached: 1000 }, kept)).toEqual([]);
  expect(noticesOf(waiting, { phase: 'Refused', requested: 9000, generation: 2 })).toEqual([]);
  expect(noticesOf({ phase: 'Idle', requested: 0 }, { phase: 'Ready', attached: 2000 })).toEqual(
    []
  );
});

test('a new request that waits starts a new wait', () => {
  const more = { ...waiting, requested: 3000, generation: 2 };
  const all = { phase: 'Ready', requested: 3000, attached: 3000, generation: 2 };
  expect(noticesOf(waiting, waiting, more, all)).toEqual(['came 1']);
});

test('a failure causes one notice, unless it existed before or on another server', () => {
  const good = { phase: 'Ready', gpus: [['a', 'attached']] as [string, string][] };
  const bad = { phase: 'Degraded', gpus: [['a', 'unhealthy']] as [string, string][] };
  expect(noticesOf(good, bad, bad)).toEqual(['lost 0']);
  const far = { phase: 'Degraded', away: 'Xid 79' };
  expect(noticesOf({ phase: 'Ready' }, far, far)).toEqual(['lost 0']);
  expect(noticesOf(bad, bad)).toEqual([]);
  expect(noticesOf(good, { ...bad, instance: 'two' })).toEqual([]);
});

test('a lowered limit causes a notice, also in a new page, and again if the time changes', () => {
  const ready = { phase: 'Ready', attached: 2000 };
  const soon = { ...ready, giveBackAt: 600 };
  const later = { ...ready, giveBackAt: 900 };
  expect(noticesOf(ready, soon, soon, later, ready)).toEqual(['lowered 0', 'lowered 0']);
  expect(noticesOf(soon, soon)).toEqual(['lowered 0']);
});

test('a raised limit ends the wait for it', () => {
  const some = { ...waiting, attached: 1000 };
  expect(noticesOf(some, some, { phase: 'Ready', attached: 2000 })).toEqual(['came 2']);
});

test('a restarted server has no earlier wait', () => {
  expect(noticesOf(waiting, { phase: 'Ready', attached: 2000, instance: 'two' })).toEqual([]);
});

test('no sequence causes a notice for the first view, a second time, or without its request', () => {
  let seed = 7;
  const random = (most: number) => (seed = (seed * 48271) % 2147483647) % most;
  const phases = ['Idle', 'Pending', 'Waiting', 'Attaching', 'Releasing', 'Ready', 'Degraded'];
  for (let round = 0; round < 100; round++) {
    let before: IFollowed | null = null;
    let generation = 1;
    for (let i = 0; i < 20; i++) {
      generation += random(4) === 0 ? 1 : 0;
      const state = now({
        phase: phases[random(phases.length)],
        attached: 1000 * random(3),
        generation,
        gpus: [['a', random(2) ? 'attached' : 'unhealthy']]
      });
      const { followed, notices }: ReturnType<typeof follow> = follow(before, state, i);
      for (const { kind, waited } of notices) {
        expect(before).not.toBeNull();
        expect(waited).toBeGreaterThanOrEqual(0);
        if (kind !== 'lost') {
          expect(before!.wait?.generation).toBe(generation);
        }
      }
      // The same view again never causes a notice.
      expect(follow(followed, state, i).notices).toEqual([]);
      before = followed;
    }
  }
});

test('a notice is shown only if the change is not visible, or after a long wait', () => {
  const seen = { hidden: false, open: true };
  const elsewhere = { hidden: false, open: false };
  const hidden = { hidden: true, open: true };
  const of = (kind: INotice['kind'], waited: number) => ({ kind, id: '', waited });
  for (const visibility of [elsewhere, hidden]) {
    expect(isWorthShowing(of('came', 2000), visibility)).toBe(false);
    expect(isWorthShowing(of('came', 4000), visibility)).toBe(true);
    expect(isWorthShowing(of('lost', 0), visibility)).toBe(true);
    expect(isWorthShowing(of('lowered', 0), visibility)).toBe(true);
  }
  expect(isWorthShowing(of('came', 4000), seen)).toBe(false);
  expect(isWorthShowing(of('cannot', 40_000), seen)).toBe(true);
  expect(isWorthShowing(of('lost', 0), seen)).toBe(false);
});

describe('claims', () => {
  const store = () => {
    const items = new Map<string, string>();
    return {
      getItem: (key: string) => items.get(key) ?? null,
      setItem: (key: string, value: string) => void items.set(key, value)
    };
  };

  test('only the first claim succeeds, and old ones are forgotten', () => {
    const shared = store();
    for (let i = 0; i < 200; i++) {
      expect([claim(shared, `${i}`), claim(shared, `${i}`)]).toEqual([true, false]);
    }
    expect((JSON.parse(shared.getItem('jupyter-gpu:told')!) as string[]).length).toBe(50);
  });

  test.each(['nonsense', '{}', 'null', '[1, 2]'])(
    'what others wrote there is no harm: %s',
    text => {
      const shared = store();
      shared.setItem('jupyter-gpu:told', text);
      expect(claim(shared, 'a')).toBe(true);
    }
  );

  test('every claim succeeds without storage', () => {
    const none = {
      getItem: () => null,
      setItem: () => {
        throw new Error('full');
      }
    };
    expect([claim(none, 'a'), claim(none, 'a')]).toEqual([true, true]);
  });

  test('one of two tabs succeeds, even before it sees the other’s claim', async () => {
    jest.useFakeTimers();
    const held = new Set<string>();
    const request = async (
      name: string,
      _: LockOptions,
      work: (lock: object | null) => Promise<void>
    ) => {
      if (held.has(name)) {
        return work(null);
      }
      held.add(name);
      await work({ name, mode: 'exclusive' });
      held.delete(name);
    };
    const browser = { locks: { request } as unknown as LockManager };
    const [one, two] = [store(), store()];
    expect(await claimAlone('a', one, browser)).toBe(true);
    expect(await claimAlone('a', two, browser)).toBe(false);
    expect(await claimAlone('b', two, browser)).toBe(true);
    await jest.advanceTimersByTimeAsync(60_000);
    expect(held.size).toBe(0);
    expect(await claimAlone('a', one, browser)).toBe(false);
    expect(await claimAlone('c', one, {})).toBe(true);
    expect(await claimAlone('c', one, {})).toBe(false);
    jest.useRealTimers();
  });

  test('the focused tab claims first, hidden ones by how long they have been hidden', () => {
    const order = [
      patience(true, false, 0),
      patience(false, false, 0),
      patience(false, true, 0),
      patience(false, true, 60_000),
      patience(false, true, 1e9)
    ];
    expect(order).toEqual([...order].sort((a, b) => a - b));
    expect(new Set(order).size).toBe(5);
    expect(order[4]).toBeLessThanOrEqual(1000);
  });
});
