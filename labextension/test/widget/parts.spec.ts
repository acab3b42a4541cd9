/** The pure parts of the slider in a cell. */
import { IView } from '../../src/api/view';
import { endpoint } from '../../src/widget/endpoint';
import { isNewer } from '../../src/widget/link';
import { RequestQueue } from '../../src/widget/request-queue';
import { lendTranslation, translation } from '../../src/widget/translation';
import { fill } from '../../src/words/translation';
import { nullTranslator } from '@jupyterlab/translation';

const HERE = 'http://127.0.0.1:8888/user/ann/lab/tree/x.ipynb';

test('a token is in header and stream', () => {
  const where = endpoint({ baseUrl: '/user/ann/', token: 'abc' }, HERE, '_xsrf=x')!;
  expect(where.request).toBe('http://127.0.0.1:8888/user/ann/jupyter-gpu/api/v1/request');
  expect(where.status).toBe('http://127.0.0.1:8888/user/ann/jupyter-gpu/api/v1/status');
  expect(where.stream).toBe('ws://127.0.0.1:8888/user/ann/jupyter-gpu/api/v1/stream?token=abc');
  expect(where.headers.Authorization).toBe('token abc');
  expect(where.headers['X-XSRFToken']).toBeUndefined();
});

test('with cookies the header repeats the XSRF cookie', () => {
  const where = endpoint(
    { baseUrl: '/' },
    HERE.replace('http', 'https'),
    'a=1; _xsrf=2%7Cab; b=2'
  )!;
  expect(where.stream).toBe('wss://127.0.0.1:8888/jupyter-gpu/api/v1/stream');
  expect(where.headers['X-XSRFToken']).toBe('2|ab');
  expect(where.headers.Authorization).toBeUndefined();
});

test.each([
  [null],
  [{}],
  [{ baseUrl: 3 }],
  [{ baseUrl: 'https://elsewhere.example/', token: 'abc' }]
])("%j, without or with another site's address, gives no endpoint", config => {
  expect(endpoint(config, HERE, '')).toBeNull();
});

test('older views are ignored, except those of a restarted server', () => {
  const at = (instance: string, version: number) => ({ instance, version }) as IView;
  expect(isNewer(at('a', 6), at('a', 5))).toBe(true);
  expect(isNewer(at('a', 5), at('a', 5))).toBe(false);
  expect(isNewer(at('a', 4), at('a', 5))).toBe(false);
  expect(isNewer(at('b', 1), at('a', 5))).toBe(true);
  expect(isNewer(at('a', 1), null)).toBe(true);
});

describe('requests', () => {
  const setUp = () => {
    const sent: { milli: number; resolve: () => void; reject: (error: Error) => void }[] = [];
    const send = (milli: number) =>
      new Promise<void>((resolve, reject) => sent.push({ milli, resolve, reject }));
    return { sent, requests: new RequestQueue(send, () => undefined) };
  };
  const soon = () => new Promise(resolve => setImmediate(resolve));

  test('are sent one at a time, and only the newest of the waiting ones', async () => {
    const { sent, requests } = setUp();
    [1000, 2000, 3000].forEach(milli => void requests.make(milli));
    expect(sent.map(one => one.milli)).toEqual([1000]);
    expect(requests.pending).toBe(3000);
    sent[0].resolve();
    await soon();
    expect(sent.map(one => one.milli)).toEqual([1000, 3000]);
    sent[1].resolve();
    await soon();
    expect(requests.pending).toBeNull();
  });

  test('the error of a replaced one is not shown', async () => {
    const { sent, requests } = setUp();
    void requests.make(1000);
    void requests.make(2000);
    sent[0].reject(new Error('old'));
    await soon();
    expect(requests.error).toBe('');
    sent[1].reject(new Error('Your limit is 1 GPU.'));
    await soon();
    expect(requests.error).toBe('Your limit is 1 GPU.');
    expect(requests.pending).toBeNull();
    void requests.make(0);
    expect(requests.error).toBe('');
  });
});

test('words are the kernel’s, unless the page has its own', () => {
  const words = translation({ '%1 of %2': '%1 von %2', 'Try again': 7 });
  expect(words.__('%1 of %2', '1', 4)).toBe('1 von 4');
  expect(words.__('Try again')).toBe('Try again');
  expect(translation(null).__('%1 GPUs', 2)).toBe('2 GPUs');
  expect(fill('%1 and %2', ['a'])).toBe('a and %2');
  const trans = nullTranslator.load('jupyter_gpu');
  lendTranslation(trans);
  expect(translation({ x: 'y' })).toBe(trans);
});
