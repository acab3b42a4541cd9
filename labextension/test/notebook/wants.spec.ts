/** The GPUs that a notebook's metadata wants, and their effect. */
import { nullTranslator } from '@jupyterlab/translation';
import { IView, parseView } from '../../src/api/view';
import {
  describe as inWords,
  IWants,
  offer,
  parseWants,
  withWants
} from '../../src/notebook/wants';
import { view } from '../server';

const trans = nullTranslator.load('jupyter_gpu');
const GIB = 2 ** 30;

const now = (requested: number, limit: number): IView =>
  parseView(
    view({
      limit,
      amounts: { requested, allocated: requested, attached: requested, draining: 0 },
      requested: { generation: 1, milli: requested }
    }),
    'view'
  );

test.each([
  [undefined, null],
  [null, null],
  [{}, null],
  [{ other: 1 }, null],
  [{ wants: null }, null],
  [{ wants: { gpus: 2 } }, { milli: 2000, memory: null }],
  [{ wants: { gpus: 0.25, memory: 4 * GIB } }, { milli: 250, memory: 4 * GIB }],
  [{ wants: { gpus: 1, memory: '20GiB', later: {} } }, { milli: 1000, memory: '20GiB' }]
])('%j', (metadata, wants) => {
  expect(parseWants(metadata)).toEqual(wants);
});

test.each([
  7,
  'two',
  [],
  { wants: 2 },
  { wants: [] },
  { wants: {} },
  { wants: { gpus: '2' } },
  { wants: { gpus: 0 } },
  { wants: { gpus: -1 } },
  { wants: { gpus: 1e9 } },
  { wants: { gpus: 0.0001 } },
  { wants: { gpus: true } },
  { wants: { gpus: 1, memory: 0 } },
  { wants: { gpus: 1, memory: 1.5 } },
  { wants: { gpus: 1, memory: '<b>' } },
  { wants: { gpus: 1, memory: '1 zettabyte' } }
])('%j is reported as invalid', metadata => {
  const found = parseWants(metadata);
  expect((found as { problem: string }).problem).toMatch(/^'jupyter_gpu.* must be /);
  // The text of the metadata is not repeated.
  expect(JSON.stringify(found)).not.toContain('<b>');
});

test('wants are written, read and removed; other metadata stays', () => {
  let seed = 11;
  const random = (most: number) => (seed = (seed * 48271) % 2147483647) % most;
  for (let round = 0; round < 500; round++) {
    const wants: IWants = {
      milli: 1 + random(1_000_000),
      memory: random(2) ? 1 + random(2 ** 31) : null
    };
    const others = random(2) ? { other: round, wants: { gpus: 7 } } : undefined;
    const written = withWants(others, wants);
    expect(parseWants(JSON.parse(JSON.stringify(written)))).toEqual(wants);
    expect(written?.other).toBe(others?.other);
    expect(withWants(written, null)).toEqual(others ? { other: round } : null);
  }
  expect(withWants('broken', { milli: 2000, memory: null })).toEqual({ wants: { gpus: 2 } });
});

test('a click asks for more, never for less and never beyond the limit', () => {
  for (let milli = 250; milli <= 9000; milli += 250) {
    for (let requested = 0; requested <= 4000; requested += 250) {
      const request = offer({ milli, memory: null }, now(requested, 4000));
      const target = Math.min(milli, 4000);
      expect(request).toEqual(requested < target ? { milli: target } : null);
    }
  }
  expect(offer({ milli: 2000, memory: '20GiB' }, now(0, 4000))).toEqual({
    milli: 2000,
    memory: '20GiB'
  });
});

test('wants are described in words', () => {
  expect(inWords({ milli: 2000, memory: null }, trans)).toBe('2 GPUs');
  expect(inWords({ milli: 500, memory: 20 * GIB }, trans)).toBe('0.5 GPU with 20 GiB each');
  expect(inWords({ milli: 1000, memory: '20GiB' }, trans)).toBe('1 GPU with 20GiB each');
});
