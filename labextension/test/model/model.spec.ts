import { RefusedError, UnreachableError } from '../../src/api/request';
import { parseView } from '../../src/api/view';
import { GpuModel } from '../../src/model/model';
import { FakeServer, until, view } from '../server';

let server: FakeServer;
let model: GpuModel;

beforeEach(async () => {
  server = new FakeServer();
  await server.start();
  server.greeting = [{ type: 'view', view: view({ version: 1 }) }];
  model = new GpuModel(server.settings(), { first: 10, longest: 40, silence: 60_000 });
  await until(() => model.view);
});

afterEach(async () => {
  model.dispose();
  await server.stop();
});

const asked = () => until(() => server.asked.shift());
const read = (changes: Record<string, unknown>) => parseView(view(changes), 'view');

/** A view of what was granted for `milli`. */
const granted = (version: number, milli: number) => {
  const amounts = { requested: milli, allocated: milli, attached: milli, draining: 0 };
  return view({ version, amounts });
};

describe('views', () => {
  test('an older or equal version of the same instance is ignored', () => {
    expect(model.accept(read({ version: 5 }))).toBe(true);
    expect(model.accept(read({ version: 5 }))).toBe(false);
    expect(model.accept(read({ version: 4 }))).toBe(false);
    expect(model.view?.version).toBe(5);
  });

  test('a new instance starts from low versions, and the old one never returns', () => {
    model.accept(read({ version: 50 }));
    expect(model.accept(read({ instance: 'two', version: 0 }))).toBe(true);
    expect(model.accept(read({ instance: 'one', version: 51 }))).toBe(false);
    expect(model.view?.instance).toBe('two');
  });

  test('the stream delivers new ones, and each emits a signal', async () => {
    let told = 0;
    model.changed.connect(() => (told += 1));
    server.say({ type: 'view', view: view({ version: 2 }) });
    await until(() => model.view?.version === 2);
    expect(told).toBe(1);
  });
});

describe('requests', () => {
  test('are shown at once, and come from the view once answered', async () => {
    const recorded = model.request({ milli: 2000 });
    expect(model.wanted).toBe(2000);
    (await asked()).answer(200, granted(2, 2000));
    expect(await recorded).toBe(true);
    await until(() => model.wanted === null);
    expect(model.view?.amounts.requested).toBe(2000);
  });

  test('are sent one at a time; of the waiting ones only the newest', async () => {
    const results = [1000, 2000, 3000, 500].map(milli => model.request({ milli }));
    const first = await asked();
    expect(first.body).toEqual({ milli: 1000, overrule: true });
    expect(server.asked).toHaveLength(0);
    first.answer(200, granted(2, 1000));
    const second = await asked();
    expect(second.body).toEqual({ milli: 500, overrule: true });
    // The answer to the first request is there, but the user wants the last one.
    expect(model.view?.amounts.requested).toBe(1000);
    expect(model.wanted).toBe(500);
    second.answer(200, granted(3, 500));
    expect(await Promise.all(results)).toEqual([true, false, false, true]);
    await until(() => model.wanted === null);
    expect(server.asked).toHaveLength(0);
  });

  test('an answer older than the view of the stream changes nothing', async () => {
    const recorded = model.request({ milli: 2000 });
    const request = await asked();
    server.say({ type: 'view', view: granted(7, 2000) });
    await until(() => model.view?.version === 7);
    request.answer(200, granted(2, 0));
    await recorded;
    expect(model.view?.version).toBe(7);
  });

  test('a refusal is reported, and the slider returns to the recorded request', async () => {
    const recorded = model.request({ milli: 9000 });
    (await asked()).answer(422, {
      reason: 'LimitExceeded',
      message: 'Your limit is 4.',
      details: {}
    });
    expect(await recorded).toBe(false);
    await until(() => model.wanted === null);
    expect(model.failure?.error).toBeInstanceOf(RefusedError);
    expect(model.failure?.request).toEqual({ milli: 9000 });
    model.dismiss();
    expect(model.failure).toBeNull();
  });

  test('the failure of a replaced request is not reported', async () => {
    void model.request({ milli: 9000 });
    void model.request({ milli: 1000 });
    (await asked()).answer(422, {
      reason: 'LimitExceeded',
      message: 'Your limit is 4.',
      details: {}
    });
    (await asked()).answer(200, granted(2, 1000));
    await until(() => model.wanted === null);
    expect(model.failure).toBeNull();
  });

  test('a failed request can be sent again', async () => {
    void model.request({ milli: 2000 });
    (await asked()).hangUp();
    await until(() => model.failure);
    expect(model.failure?.error).toBeInstanceOf(UnreachableError);
    model.retry();
    expect(model.failure).toBeNull();
    const again = await asked();
    expect(again.body).toEqual({ milli: 2000, overrule: true });
    again.answer(200, granted(2, 2000));
    await until(() => model.wanted === null);
    expect(model.failure).toBeNull();
  });

  test('dispose() ends pending calls', async () => {
    const results = [model.request({ milli: 1000 }), model.request({ milli: 2000 })];
    await asked();
    model.dispose();
    expect(await Promise.all(results)).toEqual([false, false]);
  });
});

describe('samples', () => {
  const on = () => server.heard.map(message => (message as { on: boolean }).on);

  test('are wanted only while watched in a visible tab', async () => {
    await until(() => server.heard.length);
    const [one, two] = [model.watch(), model.watch()];
    one.dispose();
    model.visible = false;
    model.visible = true;
    two.dispose();
    two.dispose();
    await until(() => server.heard.length === 5);
    expect(on()).toEqual([false, true, false, true, false]);
  });

  test('come as history on connect, then one by one, without duplicates', async () => {
    const sample = (time: number) => ({ time, gpus: { a: { utilisation: time, memory: 1 } } });
    server.say({ type: 'history', interval: 1, points: [sample(1), sample(2)] });
    server.say({ type: 'sample', sample: sample(2) });
    server.say({ type: 'sample', sample: sample(3) });
    await until(() => model.history.latest === 3);
    expect(model.history.series('a', 60).time).toEqual([1, 2, 3]);
  });
});

test('a server that cannot serve is reported until it can', async () => {
  server.say({ type: 'error', reason: 'BackendUnavailable', message: 'The disk is full.' });
  await until(() => model.failure);
  expect(model.failure?.error.message).toBe('The disk is full.');
  server.sockets.at(-1)!.close(1013);
  await until(() => server.opened === 2);
  await until(() => !model.failure);
});

test('an answer by REST is a view like any other, even if no stream can be opened', async () => {
  server.refuse = 400;
  server.sockets.at(-1)!.terminate();
  (await asked()).answer(200, view({ version: 8 }));
  await until(() => model.view?.version === 8);
  expect(model.connection.state).toBe('reconnecting');
});

test('a refusal by REST is reported with its reason', async () => {
  server.refuse = 403;
  server.sockets.at(-1)!.terminate();
  (await asked()).answer(403, { reason: 'NotPermitted', message: 'You may not.', details: {} });
  await until(() => model.connection.state === 'refused');
});
