import {
  readClock,
  readDuration,
  readGpuHours,
  readGpus,
  readMemory,
  readModel,
  readWhole,
  secondsOf
} from '../../src/hub-model/values';
import { fromWords } from '../../src/words/translation';

const trans = fromWords({});
/** What was read, or `null`: it is refused with a sentence. */
const value = (read: { value: unknown } | { error: string }) =>
  'value' in read ? read.value : (expect(read.error).toMatch(/^Type .*\.$/), null);

test.each([
  ['2', '2'],
  ['0,5', '500m'],
  ['1000', '1000'],
  ['1001', null],
  ['-1', null],
  ['0.0001', null],
  ['', null]
])('GPUs: %s', (typed, read) => expect(value(readGpus(typed, trans))).toBe(read));

test.each([
  ['40 GiB', '40Gi'],
  ['40Gi', '40Gi'],
  ['1,5 TiB', '1.5Ti'],
  ['500 MB', '500M'],
  ['1024', '1024'],
  ['40', '40'],
  ['40 K', null],
  ['much', null]
])('memory: %s', (typed, read) => expect(value(readMemory(typed, trans))).toBe(read));

test.each([
  ['10m', 0, '10m'],
  ['1h 30 min', 0, '1h30m'],
  ['59s', 60, null],
  ['60s', 60, '60s'],
  ['0s', 0, '0s'],
  ['8784h', 60, '8784h'],
  ['8785h', 60, null],
  ['ten', 0, null]
])('durations: %s from %d on', (typed, shortest, read) =>
  expect(value(readDuration(shortest)(typed, trans))).toBe(read)
);

test('seconds of a duration', () => {
  expect(secondsOf('1h30m5s')).toBe(5405);
  expect(secondsOf('1d')).toBeNull();
});

test.each([
  ['100', 100],
  ['0.50', '0.5'],
  ['3.0', 3],
  ['0,25', '0.25'],
  ['10000001', null],
  ['lots', null]
])('GPU-hours: %s', (typed, read) => expect(value(readGpuHours(typed, trans))).toBe(read));

test.each([
  ['1', 1],
  ['1000', 1000],
  ['0', null],
  ['1001', null],
  ['1.5', null]
])('whole numbers: %s', (typed, read) =>
  expect(value(readWhole(1, 1000)(typed, trans))).toBe(read)
);

test.each([
  ['8:00', false, '08:00'],
  ['23:59', false, '23:59'],
  ['24:00', false, null],
  ['24:00', true, '24:00'],
  ['24:01', true, null],
  ['12:60', true, null],
  ['noon', true, null]
])('times: %s', (typed, end, read) => expect(value(readClock(end)(typed, trans))).toBe(read));

test('a model has a letter or a digit', () => {
  expect(value(readModel(' A100 ', trans))).toBe('A100');
  expect(value(readModel('--', trans))).toBeNull();
});
