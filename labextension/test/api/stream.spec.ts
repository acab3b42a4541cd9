import { Message } from '../../src/api/message';
import { streamUrl } from '../../src/api/request';
import { Answer, backoff, Connection, ITimes, Stream } from '../../src/api/stream';
import { FakeServer, until, view } from '../server';

const TIMES: ITimes = { first: 10, longest: 40, silence: 60_000 };

let server: FakeServer;
let stream: Stream | null;
let states: Connection[];
let messages: Message[];
let answers: Answer[];
let asks: number;

beforeEach(async () => {
  server = new FakeServer();
  await server.start();
  server.greeting = [{ type: 'view', view: view() }];
  stream = null;
  [states, messages, answers, asks] = [[], [], [], 0];
});

afterEach(async () => {
  stream?.dispose();
  await server.stop();
});

function open(times = TIMES): Stream {
  const settings = server.settings();
  stream = new Stream(
    () => new settings.WebSocket(streamUrl(settings)),
    {
      message: message => messages.push(message),
      connection: state => states.push(state),
      ask: () => {
        asks += 1;
        return Promise.resolve(answers.shift() ?? { kind: 'gone' });
      }
    },
    times
  );
  return stream;
}

const state = () => states.at(-1)?.state;

test('opens once, reports that no samples are wanted, and is online with the first message', async () => {
  open();
  await until(() => messages.length);
  expect(state()).toBe('online');
  await until(() => server.heard.length);
  expect(server.heard).toEqual([{ type: 'samples', on: false }]);
  expect(server.opened).toBe(1);
});

test('samples are switched on and off on the open connection', async () => {
  const it = open();
  await until(() => messages.length);
  it.samples = true;
  it.samples = true;
  it.samples = false;
  await until(() => server.heard.length >= 3);
  expect(server.heard.map(m => (m as { on: boolean }).on)).toEqual([false, true, false]);
});

test('reconnects after the server was away, and repeats whether samples are wanted', async () => {
  const it = open();
  it.samples = true;
  await until(() => messages.length);
  const { port } = server;
  await server.stop();
  await until(() => state() === 'reconnecting');
  await until(() => asks >= 2); // it keeps trying without an answer
  server.heard.splice(0);
  await server.start(port);
  await until(() => state() === 'online');
  await until(() => server.heard.length);
  expect(server.heard).toEqual([{ type: 'samples', on: true }]);
});

test('reports when it tries next', async () => {
  open({ ...TIMES, first: 5000, longest: 30_000 });
  await until(() => messages.length);
  await server.stop();
  const planned = await until(() => {
    const last = states.at(-1);
    return last?.state === 'reconnecting' && last.retryAt !== null && last.retryAt;
  });
  expect(planned - Date.now()).toBeGreaterThan(1000);
  expect(planned - Date.now()).toBeLessThanOrEqual(5000);
});

test('does not retry by itself after a refusal; retry() does', async () => {
  server.refuse = 403;
  answers = [{ kind: 'refused', error: new Error('You may not.') }];
  const it = open();
  await until(() => state() === 'refused');
  await new Promise(resolve => setTimeout(resolve, 10 * TIMES.longest));
  expect(server.urls).toHaveLength(1);
  server.refuse = 0;
  it.retry();
  await until(() => state() === 'online');
});

test('does not retry in a hidden tab, and at once when it is visible again', async () => {
  const it = open();
  await until(() => messages.length);
  it.active = false;
  const { port } = server;
  await server.stop();
  await until(() => state() === 'reconnecting');
  await server.start(port);
  await new Promise(resolve => setTimeout(resolve, 10 * TIMES.longest));
  expect(server.opened).toBe(1);
  it.active = true;
  await until(() => server.opened === 2);
});

test('backs off from a server that opens the stream only to send an error', async () => {
  server.greeting = [{ type: 'error', reason: 'BackendUnavailable', message: 'no' }];
  open({ first: 20, longest: 10_000, silence: 60_000 });
  for (let n = 1; n <= 4; n++) {
    await until(() => server.opened === n);
    server.sockets.at(-1)!.close(1013);
  }
  const delays = await until(() => {
    const times = states.flatMap(s => (s.state === 'reconnecting' && s.retryAt ? [s.retryAt] : []));
    return times.length === 4 && times;
  });
  // 20, 40, 80, 160 ms, each from half of it upwards.
  expect(delays[3] - delays[2]).toBeGreaterThan(40);
  expect(state()).toBe('reconnecting');
  expect(messages.every(message => message.type === 'error')).toBe(true);
});

test('skips a message that cannot be read, and reads the next one', async () => {
  const warn = jest.spyOn(console, 'warn').mockImplementation();
  open();
  await until(() => messages.length);
  server.sockets[0].send('{"type":"view"');
  server.say({ type: 'view', view: { hello: 1 } });
  server.say({ type: 'sample', sample: { time: 1, gpus: {} } });
  await until(() => messages.length === 2);
  expect(messages[1].type).toBe('sample');
  expect(warn).toHaveBeenCalledTimes(2);
  warn.mockRestore();
});

test('asks after a long silence, stays while the server is alive, and closes when it is gone', async () => {
  answers = [{ kind: 'alive' }, { kind: 'alive' }];
  const it = open({ ...TIMES, silence: 30 });
  await until(() => messages.length);
  expect(asks).toBe(0);
  it.samples = true;
  await until(() => asks === 2);
  expect(server.opened).toBe(1);
  await until(() => server.opened === 2); // the third answer was: gone
});

test('receives and tries nothing after dispose()', async () => {
  const it = open();
  await until(() => messages.length);
  it.dispose();
  const before = states.length;
  await server.stop();
  await new Promise(resolve => setTimeout(resolve, 10 * TIMES.longest));
  expect(states).toHaveLength(before);
  expect(messages).toHaveLength(1);
});

test('back-off doubles up to its bound, with a spread of half of it', () => {
  const times = { first: 500, longest: 30_000, silence: 0 };
  expect([0, 1, 2, 10, 10_000].map(n => backoff(n, 1, times))).toEqual([
    500, 1000, 2000, 30_000, 30_000
  ]);
  expect(backoff(1, 0, times)).toBe(500);
});
