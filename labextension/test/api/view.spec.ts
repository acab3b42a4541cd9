import { FieldError } from '../../src/api/check';
import { parseMessage } from '../../src/api/message';
import { parseSample } from '../../src/api/sample';
import { parseView } from '../../src/api/view';
import { golden } from '../golden';

describe('parseView', () => {
  test.each(golden('views').map(c => [c.name, c] as const))('reads: %s', (_, { view }) => {
    const json = view as Record<string, unknown> & { gpus: { uuid: string }[] };
    const parsed = parseView(view, 'view');
    expect(parsed.phase).toBe(json.phase);
    expect(parsed.amounts).toEqual(json.amounts);
    expect(parsed.gpus.map(gpu => gpu.uuid)).toEqual(json.gpus.map(gpu => gpu.uuid));
  });

  test.each(golden('bad_views').map(c => [c.name, c] as const))('refuses: %s', (_, { view }) => {
    expect(() => parseView(view, 'view')).toThrow(FieldError);
  });

  test('reads amount, shares, memory, models and generation of a request; the server keeps the rest', () => {
    const { view } = golden('views')[0];
    const requested = { generation: 3, milli: 1000, base: 0, model: ['H100'], newer: 1 };
    const parsed = parseView({ ...(view as object), requested }, 'view');
    expect(parsed.requested).toEqual({
      generation: 3,
      milli: 1000,
      each: null,
      memory: null,
      model: ['H100'],
      placement: null
    });
  });

  test('reads the kinds of GPUs, and the memory that a limit leaves', () => {
    const { view } = golden('views').find(c => c.name.includes('memory of its own'))!;
    const { kinds, userLimit } = parseView(view, 'view');
    expect(kinds.map(kind => [kind.model, kind.gate])).toEqual([
      ['NVIDIA H100', true],
      ['NVIDIA A100', true]
    ]);
    expect(userLimit!.memory).toBe(60 * 2 ** 30);
  });

  test('names the wrong field', () => {
    const { view } = golden('views').find(c => (c.view as { gpus: unknown[] }).gpus.length > 0)!;
    const json = structuredClone(view) as { gpus: { milli: unknown }[] };
    json.gpus[0].milli = 1001;
    expect(() => parseView(json, 'view')).toThrow("'view.gpus[0].milli'");
  });
});

describe('parseMessage', () => {
  const sample = { time: 12.5, gpus: { a: { utilisation: 42.5, memory: 10 }, b: {} } };

  test('reads samples, also of devices that report nothing', () => {
    const parsed = parseSample(sample, 'sample');
    expect(parsed.gpus.get('a')).toEqual({ utilisation: 42.5, memory: 10 });
    expect(parsed.gpus.get('b')).toEqual({ utilisation: null, memory: null });
  });

  test('reads each message of the stream', () => {
    const { view } = golden('views')[0];
    expect(parseMessage({ type: 'view', view })?.type).toBe('view');
    expect(parseMessage({ type: 'sample', sample })?.type).toBe('sample');
    expect(parseMessage({ type: 'history', interval: 1, points: [sample] })?.type).toBe('history');
    expect(parseMessage({ type: 'error', reason: 'x', message: 'y' })).toEqual({
      type: 'error',
      reason: 'x',
      message: 'y'
    });
  });

  test('ignores fields of a newer server', () => {
    expect(parseMessage({ type: 'bank', milli: 3 })).toBeNull();
  });

  test.each([
    [
      'utilisation above 100',
      { type: 'sample', sample: { time: 1, gpus: { a: { utilisation: 101 } } } }
    ],
    ['NaN as text', { type: 'sample', sample: { time: 'NaN', gpus: {} } }],
    ['no interval', { type: 'history', points: [] }],
    ['a list', []],
    ['null', null],
    ['no type', {}]
  ])('refuses: %s', (_, message) => {
    expect(() => parseMessage(message)).toThrow(FieldError);
  });
});

describe('samples with time shares', () => {
  test.each(golden('samples').map(c => [c.name, c] as const))('reads: %s', (_, { sample }) => {
    const json = sample as { time: number; shares?: Record<string, Record<string, unknown>> };
    const parsed = parseSample(sample, 'sample');
    expect(parsed.time).toBe(json.time);
    expect([...(parsed.shares?.keys() ?? [])]).toEqual(Object.keys(json.shares ?? {}));
    for (const [uuid, found] of parsed.shares ?? []) {
      const { memory_used, memory_limit, ...rest } = json.shares![uuid];
      expect(found).toEqual({ ...rest, memoryUsed: memory_used, memoryLimit: memory_limit });
    }
  });

  test.each(golden('bad_samples').map(c => [c.name, c] as const))('refuses: %s', (_, c) => {
    expect(() => parseSample(c.sample, 'sample')).toThrow(FieldError);
  });
});
