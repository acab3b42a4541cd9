import { nullTranslator } from '@jupyterlab/translation';
import { FieldError } from '../../src/api/check';
import { IServer, parseMachine } from '../../src/api/machine';
import { holder, sums, waits } from '../../src/machine/machine';
import { golden } from '../golden';

const trans = nullTranslator.load('jupyter_gpu');
const ANN: IServer = {
  user: 'ann',
  here: false,
  folder: '',
  port: null,
  ended: false,
  has: 0,
  owed: 0,
  position: null
};

describe('parseMachine', () => {
  test.each(golden('machines').map(c => [c.name, c] as const))('reads: %s', (_, { machine }) => {
    const body = machine as { gpus: { uuid: string; free: number }[]; servers: object[] };
    const parsed = parseMachine(machine, 'machine');
    expect(parsed.gpus.map(({ uuid, free }) => ({ uuid, free }))).toEqual(
      body.gpus.map(({ uuid, free }) => ({ uuid, free }))
    );
    expect(parsed.servers).toHaveLength(body.servers.length);
  });

  test('assigns each part to its server', () => {
    const { machine } = golden('machines').find(c => c.name === 'two users')!;
    const parsed = parseMachine(machine, 'machine');
    expect(parsed.gpus[1].parts.map(part => [part.server?.user, part.draining])).toEqual([
      ['ann', false],
      ['bob', true]
    ]);
    expect(
      parseMachine(golden('machines')[1].machine, 'machine').gpus[0].parts[1].server
    ).toBeNull();
  });

  test.each([{}, { servers: [] }, { shown: 'all' }])('refuses: %j', change => {
    const { machine } = golden('machines')[0];
    const body = Object.keys(change).length ? { ...(machine as object), ...change } : {};
    expect(() => parseMachine(body, 'machine')).toThrow(FieldError);
  });
});

test('servers are named by what may be shown', () => {
  expect(holder(null, trans)).toBe('Others');
  expect(holder({ ...ANN, here: true, folder: '~/a' }, trans)).toBe('This server');
  expect(holder(ANN, trans)).toBe('ann');
  expect(holder({ ...ANN, folder: '~/a', port: 8889 }, trans)).toBe('ann, ~/a (port 8889)');
  expect(holder({ ...ANN, ended: true }, trans)).toBe('ann, ended');
});

test('the line and the sums are in words', () => {
  expect(waits({ ...ANN, owed: 2000 }, trans)).toBe('ann: waits for 2');
  expect(waits({ ...ANN, has: 500, owed: 1500 }, trans)).toBe('ann: waits for 1.5 more');
  expect(sums({ gpus: 1, free: 0, used: 1000, waiting: 1 }, trans)).toBe(
    '0 of 1 GPU is free, 1 server waits'
  );
  expect(sums({ gpus: 4, free: 2500, used: 1500, waiting: 0 }, trans)).toBe(
    '2.5 of 4 GPUs are free, nobody waits'
  );
  expect(sums({ gpus: 4, free: 0, used: 4000, waiting: 3 }, trans)).toContain('3 servers wait');
});
