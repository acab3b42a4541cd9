import { ISample } from '../../src/api/sample';
import { History } from '../../src/history/history';

const sample = (time: number, loads: Record<string, [number | null, number | null]>): ISample => ({
  time,
  gpus: new Map(
    Object.entries(loads).map(([uuid, [utilisation, memory]]) => [uuid, { utilisation, memory }])
  )
});

test('keeps the newest of any number, in order', () => {
  const history = new History(4);
  for (let time = 1; time <= 11; time++) {
    history.push(sample(time, { a: [time, time * 1e9] }));
  }
  expect(history.series('a', 1000)).toEqual({
    time: [8, 9, 10, 11],
    utilisation: [8, 9, 10, 11],
    memory: [8e9, 9e9, 10e9, 11e9]
  });
});

test('is exact for memory: 80 GiB and a byte', () => {
  const history = new History(2);
  history.push(sample(1, { a: [0, 80 * 2 ** 30 + 1] }));
  expect(history.series('a', 10).memory).toEqual([80 * 2 ** 30 + 1]);
});

test('returns the window before the newest sample', () => {
  const history = new History(100);
  history.reset(
    1,
    [1, 2, 3, 4].map(time => sample(time, { a: [0, 0] }))
  );
  expect(history.series('a', 2).time).toEqual([2, 3, 4]);
});

test('a gap in time is a gap in the line', () => {
  const history = new History(100);
  history.reset(
    1,
    [1, 2, 10].map(time => sample(time, { a: [50, 5] }))
  );
  expect(history.series('a', 100)).toEqual({
    time: [1, 2, 6, 10],
    utilisation: [50, 50, null, 50],
    memory: [5, 5, null, 5]
  });
});

test('missing GPUs and unknown values are null', () => {
  const history = new History(100);
  history.push(sample(1, { a: [10, null] }));
  history.push(sample(2, { a: [11, 7], b: [null, 9] }));
  history.push(sample(3, { b: [20, 9] }));
  expect(history.series('a', 100)).toEqual({
    time: [1, 2, 3],
    utilisation: [10, 11, null],
    memory: [null, 7, null]
  });
  expect(history.series('b', 100).utilisation).toEqual([null, null, 20]);
  expect(history.series('c', 100).time).toEqual([]);
});

test('an older sample is ignored', () => {
  const history = new History(10);
  expect(history.push(sample(5, { a: [1, 1] }))).toBe(true);
  expect(history.push(sample(5, { a: [2, 2] }))).toBe(false);
  expect(history.push(sample(4, { a: [3, 3] }))).toBe(false);
  expect(history.series('a', 10).utilisation).toEqual([1]);
});

test('a new history replaces all, also with an older clock', () => {
  const history = new History(10);
  history.push(sample(100, { a: [1, 1] }));
  history.reset(2, [sample(50, { b: [2, 2] })]);
  expect(history.latest).toBe(50);
  expect(history.series('a', 1000).time).toEqual([]);
});

test('a full ring shows no values of an old round', () => {
  const history = new History(3);
  for (let time = 1; time <= 3; time++) {
    history.push(sample(time, { a: [time, time] }));
  }
  for (let time = 4; time <= 5; time++) {
    history.push(sample(time, { b: [time, time] }));
  }
  expect(history.series('a', 100).utilisation).toEqual([3, null, null]);
});

test('removed GPUs are dropped', () => {
  const history = new History(3);
  for (let i = 0; i < 100; i++) {
    history.push(sample(i, { [`gpu-${i}`]: [1, 1] }));
  }
  const { columns } = history as unknown as { columns: Map<string, unknown> };
  expect(columns.size).toBeLessThanOrEqual(6);
});

test('a point for many samples is no gap, one after a pause is', () => {
  const history = new History(100);
  history.reset(1, [
    sample(1, { a: [10, 1] }),
    { ...sample(65, { a: [20, 2] }), since: 1 },
    { ...sample(200, { a: [30, 3] }), since: 100 },
    sample(201, { a: [40, 4] })
  ]);
  expect(history.series('a', 1000)).toMatchObject({
    time: [1, 65, 132.5, 200, 201],
    utilisation: [10, 20, null, 30, 40]
  });
});
