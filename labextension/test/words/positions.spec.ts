import { labelled, nearest, parseGpus, positions, shortGpus } from '../../src/words/positions';
import { formatBytes, formatGpus } from '../../src/words/quantity';

const STEPS = [0, 250, 500, 1000, 2000, 3000, 4000];

test('positions are the steps, and a request of code between them', () => {
  expect(positions(STEPS, 4000, 1000)).toEqual(STEPS);
  expect(positions(STEPS, 4000, 750)).toEqual([0, 250, 500, 750, 1000, 2000, 3000, 4000]);
});

test('no position is above the limit, except a request', () => {
  expect(positions(STEPS, 2000, 0)).toEqual([0, 250, 500, 1000, 2000]);
  expect(positions(STEPS, 2000, 4000)).toEqual([0, 250, 500, 1000, 2000, 4000]);
});

test('0 is always a position', () => {
  expect(positions([], 0, 0)).toEqual([0]);
});

test('nearest finds the nearest position', () => {
  expect(nearest(STEPS, 1000)).toBe(3);
  expect(nearest(STEPS, 1600)).toBe(4);
  expect(nearest(STEPS, 9999)).toBe(6);
});

test('labels all positions if there is room, else the ends and evenly spaced whole GPUs', () => {
  expect(labelled(STEPS, 10)).toEqual([0, 1, 2, 3, 4, 5, 6]);
  for (const count of [8, 16, 24, 64, 256]) {
    const places = [0, 250, 500, ...Array.from({ length: count }, (_, i) => 1000 * (i + 1))];
    const chosen = labelled(places, 10);
    expect(chosen.length).toBeLessThanOrEqual(count > 8 ? 11 : 10);
    expect(chosen[0]).toBe(0);
    expect(chosen.at(-1)).toBe(places.length - 1);
    expect([...chosen].sort((a, b) => a - b)).toEqual(chosen);
    // No two labels on top of each other.
    const gaps = chosen.slice(1).map((at, i) => (at - chosen[i]) / (places.length - 1));
    expect(Math.min(...gaps)).toBeGreaterThan(0.06);
  }
});

test('amounts are formatted for people', () => {
  expect([0, 250, 1000, 1500, 333].map(formatGpus)).toEqual(['0', '0.25', '1', '1.5', '0.333']);
  expect([0, 250, 1500, 2000, 300].map(shortGpus)).toEqual(['0', '¼', '1½', '2', '0.3']);
  expect([0, 1536, 80 * 2 ** 30].map(formatBytes)).toEqual(['0 B', '1.5 KiB', '80 GiB']);
});

test.each([
  ['2', 2000],
  [' 0.5 ', 500],
  ['0,25', 250],
  ['.5', 500],
  ['2.', 2000],
  ['0', 0],
  ['4', 4000]
])('typed %s is %s milli', (typed, milli) => {
  expect(parseGpus(typed, 4000)).toBe(milli);
});

test.each([
  '',
  ' ',
  'two',
  '-1',
  '5',
  '4.001',
  '0.0001',
  'NaN',
  '1e3',
  '1.2.3',
  '0x2',
  '.',
  '99999'
])('typed %p is no amount', typed => {
  expect(parseGpus(typed, 4000)).toBeNull();
});
