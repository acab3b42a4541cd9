/** @jest-environment jsdom */
/** The slider's connection through the kernel: it never waits without an explanation. */
import { nullTranslator } from '@jupyterlab/translation';
import { IView } from '../../src/api/view';
import { IModel, KernelLink } from '../../src/widget/through-kernel';
import { golden } from '../golden';

const TIMES = { silence: 9000, report: 15_000, slow: 2000 };
const trans = nullTranslator.load('jupyter_gpu');

/** A widget's model, with the page's messages, and a kernel that the test plays. */
class Model implements IModel {
  readonly said: Record<string, unknown>[] = [];
  connected = true;
  get = () => '';
  on(name: string, callback: (...args: never[]) => void): void {
    this.callbacks.set(name, callback as (content: unknown) => void);
  }
  off(name: string): void {
    this.callbacks.delete(name);
  }
  send(content: unknown): void {
    if (!this.connected) {
      throw new Error('no comm');
    }
    this.said.push(content as Record<string, unknown>);
  }
  hear(content: unknown): void {
    this.callbacks.get('msg:custom')?.(content);
  }
  view(version: number): void {
    const body = golden('views')[0].view as Record<string, unknown>;
    this.hear({ type: 'view', view: { ...body, instance: 'one', version } });
  }
  readonly callbacks = new Map<string, (content?: unknown) => void>();
}

let model: Model;
let views: IView[];
let troubles: string[];
let link: KernelLink;
let leave: () => void;

beforeEach(() => {
  jest.useFakeTimers();
  model = new Model();
  [views, troubles] = [[], []];
  link = new KernelLink(model, trans, TIMES);
  leave = link.join({
    view: view => views.push(view),
    sample: () => undefined,
    trouble: words => troubles.push(words)
  });
});

afterEach(() => {
  leave();
  jest.useRealTimers();
});

test('reports a visible page repeatedly, and shows newer views', () => {
  expect(model.said).toEqual([{ type: 'visible' }]);
  model.view(5);
  model.view(4);
  expect(views.map(view => view.version)).toEqual([5]);
  jest.advanceTimersByTime(8000);
  model.view(5);
  jest.advanceTimersByTime(8000);
  expect(model.said).toHaveLength(2);
  expect(troubles).toEqual([]);
});

test('a saved notebook without a kernel is explained within ten seconds', () => {
  jest.advanceTimersByTime(10_000);
  expect(troubles).toEqual([
    'No kernel answers here. Run this cell again, or wait if its kernel is busy.'
  ]);
  model.view(1);
  expect(troubles.at(-1)).toBe('');
});

test('a silent kernel is reported until it is back', () => {
  model.view(1);
  jest.advanceTimersByTime(9500);
  expect(troubles.at(-1)).toMatch(/^The kernel does not answer/);
  jest.advanceTimersByTime(60_000);
  expect(new Set(troubles).size).toBe(1);
  model.view(2);
  expect(troubles.at(-1)).toBe('');
});

test('a closed connection is reported after two seconds', () => {
  model.view(1);
  model.connected = false;
  model.callbacks.get('comm_live_update')?.();
  jest.advanceTimersByTime(2100);
  expect(troubles.at(-1)).toMatch(/^The kernel does not answer/);
});

test('a request is answered by its id', async () => {
  model.view(1);
  const request = link.request(2000);
  const { id, milli } = model.said.find(one => one.type === 'request')!;
  expect(milli).toBe(2000);
  model.hear({ type: 'answer', id: 'of another page', error: 'no' });
  model.hear({ type: 'answer', id, error: '' });
  await request;
  const refused = link.request(9000);
  model.hear({ type: 'answer', id: model.said.at(-2)!.id, error: 'Your limit is 4 GPUs.' });
  await expect(refused).rejects.toThrow('Your limit is 4 GPUs.');
  expect(troubles).toEqual([]);
});

test('a request during a running cell waits, with an explanation', async () => {
  model.view(1);
  const request = link.request(2000);
  for (let i = 0; i < 20; i++) {
    jest.advanceTimersByTime(2500);
    model.view(1);
  }
  expect(troubles).toEqual(['The kernel is busy. It asks for that when its cell ends.']);
  model.hear({ type: 'answer', id: model.said.find(one => one.type === 'request')!.id, error: '' });
  await request;
  expect(troubles.at(-1)).toBe('');
});

test('a request to a dead kernel ends with a message', async () => {
  model.view(1);
  const request = link.request(2000);
  const ended = expect(request).rejects.toThrow('The kernel does not answer.');
  jest.advanceTimersByTime(10_000);
  await ended;
});

test('a server that the kernel does not reach is reported until it does', () => {
  model.view(1);
  const message = 'The Jupyter server at … does not answer.';
  model.hear({ type: 'error', reason: 'ServerUnreachable', message });
  expect(troubles.at(-1)).toBe(message);
  model.view(2);
  expect(troubles.at(-1)).toBe('');
});

test('a hidden page sends nothing and reports no trouble', () => {
  model.view(1);
  const hide = jest.spyOn(document, 'visibilityState', 'get').mockReturnValue('hidden');
  document.dispatchEvent(new Event('visibilitychange'));
  jest.advanceTimersByTime(120_000);
  expect(troubles).toEqual([]);
  expect(model.said).toHaveLength(1);
  hide.mockRestore();
  document.dispatchEvent(new Event('visibilitychange'));
  expect(model.said).toHaveLength(2);
});

test('invalid messages are ignored', () => {
  const warn = jest.spyOn(console, 'warn').mockImplementation(() => undefined);
  for (const content of [null, 3, {}, { type: 'view' }, { type: 'answer' }, { type: 'other' }]) {
    model.hear(content);
  }
  expect(views).toEqual([]);
  warn.mockRestore();
});
