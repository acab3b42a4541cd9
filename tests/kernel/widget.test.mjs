/** The pure parts of the slider in a cell; run by test_widget.py with node's own test runner. */
import assert from 'node:assert/strict';
import { test } from 'node:test';

const { Wishes, endpoint, formatGpus, isNewer, pause, places, valueText } = await import(process.env.WIDGET);

const HERE = 'http://127.0.0.1:8888/user/ann/lab/tree/x.ipynb';

test('amounts as people read them', () => {
  assert.equal(formatGpus(2000), '2');
  assert.equal(formatGpus(250), '0.25');
  assert.equal(valueText(2000, 4000), '2 of 4 GPUs');
  assert.equal(valueText(500, 1000), '0.5 of 1 GPU');
});

test('the slider stands at the steps, and where code asked for something between', () => {
  assert.deepEqual(places({ steps: [0, 500, 1000], amounts: { requested: 750 } }), [0, 500, 750, 1000]);
  assert.deepEqual(places({ steps: [0, 1000], amounts: { requested: 1000 } }), [0, 1000]);
});

test('with a token: header and stream have it', () => {
  const where = endpoint({ baseUrl: '/user/ann/', token: 'abc' }, HERE, '_xsrf=x');
  assert.equal(where.request, 'http://127.0.0.1:8888/user/ann/jupyter-gpu/api/v1/request');
  assert.equal(where.stream, 'ws://127.0.0.1:8888/user/ann/jupyter-gpu/api/v1/stream?token=abc');
  assert.equal(where.headers.Authorization, 'token abc');
  assert.equal(where.headers['X-XSRFToken'], undefined);
});

test('with cookies: the header repeats the one against cross-site requests', () => {
  const where = endpoint({ baseUrl: '/' }, HERE.replace('http', 'https'), 'a=1; _xsrf=2%7Cab; b=2');
  assert.equal(where.stream, 'wss://127.0.0.1:8888/jupyter-gpu/api/v1/stream');
  assert.equal(where.headers['X-XSRFToken'], '2|ab');
  assert.equal(where.headers.Authorization, undefined);
});

test('no configuration, or one that leads elsewhere, means: ask the kernel', () => {
  assert.equal(endpoint(null, HERE, ''), null);
  assert.equal(endpoint({}, HERE, ''), null);
  assert.equal(endpoint({ baseUrl: 'https://elsewhere.example/', token: 'abc' }, HERE, ''), null);
});

test('older views are left out', () => {
  const now = { instance: 'a', version: 5 };
  assert.ok(isNewer({ instance: 'a', version: 6 }, now));
  assert.ok(!isNewer({ instance: 'a', version: 5 }, now));
  assert.ok(!isNewer({ instance: 'a', version: 4 }, now));
  assert.ok(isNewer({ instance: 'b', version: 1 }, now));
  assert.ok(isNewer(now, null));
});

test('the pause grows up to a bound', () => {
  assert.equal(pause(0, 1), 500);
  assert.equal(pause(3, 0), 2000);
  assert.equal(pause(1000, 1), 30000);
});

function controlled() {
  const sent = [];
  const send = milli => new Promise((resolve, reject) => sent.push({ milli, resolve, reject }));
  return { sent, wishes: new Wishes(send, () => {}) };
}

const soon = () => new Promise(resolve => setImmediate(resolve));

test('one wish at a time, and only the newest of those that waited', async () => {
  const { sent, wishes } = controlled();
  wishes.make(1000);
  wishes.make(2000);
  wishes.make(3000);
  assert.deepEqual(sent.map(s => s.milli), [1000]);
  assert.equal(wishes.pending, 3000);
  sent[0].resolve();
  await soon();
  assert.deepEqual(sent.map(s => s.milli), [1000, 3000]);
  sent[1].resolve();
  await soon();
  assert.equal(wishes.pending, null);
});

test('the error of a wish that was replaced is not shown', async () => {
  const { sent, wishes } = controlled();
  wishes.make(1000);
  wishes.make(2000);
  sent[0].reject(new Error('old'));
  await soon();
  assert.equal(wishes.error, '');
  sent[1].reject(new Error('Your limit is 1 GPU.'));
  await soon();
  assert.equal(wishes.error, 'Your limit is 1 GPU.');
  assert.equal(wishes.pending, null);
  wishes.make(0);
  assert.equal(wishes.error, '');
});
