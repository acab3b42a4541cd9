import { nullTranslator } from '@jupyterlab/translation';
import { FieldError } from '../../src/api/check';
import { IGpuDetails, parseDetails } from '../../src/api/details';
import { brief, facts, rate } from '../../src/gpus/details-line';
import { golden } from '../golden';

const trans = nullTranslator.load('jupyter_gpu');
const NOTHING: IGpuDetails = {
  slowdown: null,
  powerLimit: null,
  pcie: null,
  nvlink: null,
  processes: null,
  others: null
};
const SILENT = { utilisation: null, memory: null };

describe('parseDetails', () => {
  test.each(golden('details').map(c => [c.name, c] as const))('reads: %s', (_, { details }) => {
    const { gpus } = details as { gpus: Record<string, object> };
    const parsed = parseDetails(details, 'details');
    expect([...parsed.keys()]).toEqual(Object.keys(gpus));
    for (const [uuid, { powerLimit, ...found }] of parsed) {
      const told = Object.entries({ ...found, power_limit: powerLimit }).filter(
        ([, value]) => value !== null
      );
      expect(JSON.parse(JSON.stringify(Object.fromEntries(told), dropNull))).toEqual(gpus[uuid]);
    }
  });

  test.each([[{}], [{ gpus: [] }], [{ gpus: { a: { slowdown: 'hot' } } }], [{ gpus: { a: 3 } }]])(
    'refuses %j',
    body => expect(() => parseDetails(body, 'details')).toThrow(FieldError)
  );
});

const dropNull = (_: string, value: unknown) => (value === null ? undefined : value);

test('the line shows known values only', () => {
  expect(brief({ ...SILENT, temperature: 62, power: 210.4 }, trans)).toBe('62 °C · 210 W');
  expect(brief({ ...SILENT, temperature: 62 }, trans)).toBe('62 °C');
  expect(brief(SILENT, trans)).toBe('');
});

test('values are shown with their limits', () => {
  const load = { ...SILENT, temperature: 62, power: 210.4 };
  const full = {
    ...NOTHING,
    slowdown: 90,
    powerLimit: 400,
    pcie: { received: 1.2e9, sent: 0 },
    nvlink: { received: 4.5e11, sent: 7 }
  };
  expect(facts(load, full, trans)).toEqual([
    ['Temperature', '62 °C, slows down at 90 °C'],
    ['Power', '210 of 400 W'],
    ['PCIe', '1.2 GB/s in, 0 B/s out'],
    ['NVLink', '450 GB/s in, 7 B/s out']
  ]);
  expect(facts({ ...load, temperature: 91 }, full, trans)[0][1]).toBe(
    '91 °C: too hot, it makes itself slower'
  );
  expect(facts(load, undefined, trans)).toEqual([
    ['Temperature', '62 °C'],
    ['Power', '210 W']
  ]);
  expect(facts(SILENT, NOTHING, trans)).toEqual([]);
});

test.each([
  [0, '0 B/s'],
  [999, '999 B/s'],
  [1000, '1 kB/s'],
  [1234567, '1.2 MB/s'],
  [9.9e15, '9900 TB/s']
])('%d bytes a second are %s', (bytes, words) => expect(rate(bytes, trans)).toBe(words));
