import {
  BadAnswerError,
  getStatus,
  putRequest,
  RefusedError,
  streamUrl,
  UnreachableError
} from '../../src/api/request';
import { FakeServer, until, view } from '../server';

const server = new FakeServer();
beforeAll(() => server.start());
afterAll(() => server.stop());
afterEach(() => server.asked.splice(0));

const asked = () => until(() => server.asked.shift());

test('a request is sent to our route below the base URL, as JSON, with the token', async () => {
  const answer = putRequest(server.settings(), {
    milli: 500,
    generation: 3
  });
  const request = await asked();
  expect(request.method).toBe('PUT');
  expect(request.path).toMatch(/^\/a%40b\/jupyter-gpu\/api\/v1\/request(\?\d+)?$/);
  expect(request.headers['content-type']).toBe('application/json');
  expect(request.headers.authorization).toBe('token se cret');
  expect(request.body).toEqual({ milli: 500, generation: 3, overrule: true });
  request.answer(200, view({ version: 9 }));
  expect((await answer).version).toBe(9);
});

test('options that are named are sent', async () => {
  void putRequest(server.settings(), { milli: 1000, memory: '20GiB', placement: 'local' });
  const request = await asked();
  const body = { milli: 1000, memory: '20GiB', placement: 'local', overrule: true };
  expect(request.body).toEqual(body);
  request.answer(200, view());
});

test('release removes every option by name', async () => {
  void putRequest(server.settings(), { milli: 0, forget: true }).catch(() => null);
  const request = await asked();
  expect(request.body).toEqual({
    milli: 0,
    each: null,
    memory: null,
    model: null,
    vendor: null,
    topology: null,
    placement: null,
    priority: null,
    lendable: null,
    overrule: true
  });
  request.answer(200, view());
});

test('a refusal keeps its reason and message', async () => {
  const answer = putRequest(server.settings(), { milli: 9000 });
  (await asked()).answer(422, {
    reason: 'LimitExceeded',
    message: 'Your limit is 4 GPUs.',
    details: {}
  });
  await expect(answer).rejects.toMatchObject({
    name: 'RefusedError',
    reason: 'LimitExceeded',
    message: 'Your limit is 4 GPUs.',
    status: 422
  });
});

test.each([502, 503, 504])('%s of a gateway is reported as no answer', async status => {
  const answer = getStatus(server.settings());
  (await asked()).answer(status, '<html>Bad gateway</html>');
  await expect(answer).rejects.toBeInstanceOf(UnreachableError);
});

test('404 without our JSON means that the server has no such route', async () => {
  const answer = getStatus(server.settings());
  (await asked()).answer(404, '<html>not found</html>');
  await expect(answer).rejects.toBeInstanceOf(RefusedError);
});

test('a broken connection is reported as no answer', async () => {
  const answer = getStatus(server.settings());
  (await asked()).hangUp();
  await expect(answer).rejects.toBeInstanceOf(UnreachableError);
});

test.each([
  ['no JSON', '<html>'],
  ['another JSON', { hello: 1 }],
  ['a wrong field', view({ limit: -1 })]
])('an answer that violates the contract is an error of its own: %s', async (_, body) => {
  const answer = getStatus(server.settings());
  (await asked()).answer(200, body);
  await expect(answer).rejects.toBeInstanceOf(BadAnswerError);
});

test('the stream carries the token only if a cookie is not enough', () => {
  expect(streamUrl(server.settings())).toMatch(
    /\/a%40b\/jupyter-gpu\/api\/v1\/stream\?token=se%20cret$/
  );
  expect(streamUrl(server.settings({ appendToken: false }))).toMatch(/\/stream$/);
});
