import { areaPath, slicePath, stretches } from '../../src/gpus/share-area';
import { LAYERS, IMoment, IRates } from '../../src/history/share-history';
import { share } from '../share';

const NOTHING: IRates = { guaranteed: 0, borrowed: 0, idle: 0, waiting: 0, throttled: 0 };
const FRAME = { now: 100, seconds: 10, width: 100, height: 100 };

const moment = (time: number, rates: Partial<IRates> | null, effective = 250): IMoment => ({
  time,
  use: share({ effective }),
  rates: rates && { ...NOTHING, ...rates }
});

test('each stretch is the time between two samples; unknown time is a gap', () => {
  const found = stretches(
    [moment(1, null), moment(2, { idle: 1 }), moment(9, null), moment(10, { waiting: 1 }, 400)],
    0.5
  );
  expect(found.map(({ from, to, slice }) => [from, to, slice])).toEqual([
    [1, 2, 250],
    [9, 10, 400]
  ]);
  expect(stretches([], 1)).toEqual([]);
});

test('many are merged to their weighted mean, never across a gap', () => {
  const found = stretches(
    [
      moment(0, null),
      moment(1, { guaranteed: 1 }),
      moment(4, { waiting: 1 }),
      moment(4.2, null),
      moment(4.5, { idle: 1 }),
      moment(5, { idle: 1 })
    ],
    5
  );
  expect(found.map(({ from, to }) => [from, to])).toEqual([
    [0, 4],
    [4.2, 4.5],
    [4.5, 5]
  ]);
  expect(found[0].rates).toEqual({ ...NOTHING, guaranteed: 0.25, waiting: 0.75 });
  const long = Array.from({ length: 3600 }, (_, i) => moment(i, i ? { borrowed: 0.5 } : null));
  const short = stretches(long, 30);
  expect(short.length).toBe(120);
  expect(short[short.length - 1].to).toBe(3599);
  expect(short.every(({ rates }) => Math.abs(rates.borrowed - 0.5) < 1e-9)).toBe(true);
});

test('a drawn stretch stays the same as time passes', () => {
  const all = Array.from({ length: 40 }, (_, i) => moment(i / 4, i ? { idle: (i % 7) / 7 } : null));
  const before = stretches(all.slice(0, 30), 1);
  const after = stretches(all.slice(5), 1);
  expect(after.slice(1, 5)).toEqual(before.slice(2, 6));
});

test('layers are stacked and fill the picture if all time is spent', () => {
  const rates = { guaranteed: 0.25, borrowed: 0.25, idle: 0.25, waiting: 0.25 };
  const all = stretches([moment(95, null), moment(100, rates)], 1);
  expect(LAYERS.map(layer => areaPath(all, layer, FRAME))).toEqual([
    'M50 100V75H100V100Z',
    'M50 75V50H100V75Z',
    'M50 50V25H100V50Z',
    'M50 25V0H100V25Z'
  ]);
});

test('an empty layer is not drawn, nor anything left of the picture', () => {
  const all = stretches([moment(80, null), moment(95, { guaranteed: 0.5 })], 1);
  expect(areaPath(all, 'idle', FRAME)).toBe('');
  expect(areaPath(all, 'guaranteed', FRAME)).toBe('M0 100V50H50V100Z');
});

test('the slice is one stepped line, and starts again after a gap', () => {
  const all = stretches(
    [
      moment(90, null),
      moment(92, {}, 250),
      moment(94, {}, 500),
      moment(98, null),
      moment(100, {}, 500)
    ],
    1
  );
  expect(slicePath(all, FRAME)).toBe('M0 75H20L20 50H40M80 50H100');
});
