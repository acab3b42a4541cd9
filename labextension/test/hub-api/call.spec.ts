import { integer, record } from '../../src/api/check';
import { Api, cookie, loadAgain, RefusedError, UnreachableError } from '../../src/hub-api/call';
import { events, follow, readEvent, versionOf } from '../../src/hub-api/changes';
import { pauseAfter } from '../../src/hub-common/resource';
import { readMe, readSubjects } from '../../src/hub-api/limits';

const logIn = jest.fn();
const api = new Api({ base: '/services/gpu/', xsrf: () => 'secret', logIn });
const read = record({ n: integer(0, 9) });

/** Answer the next request like this; the requests that were sent. */
function answer(body: string, status = 200): jest.SpyInstance {
  return jest
    .spyOn(globalThis, 'fetch')
    .mockResolvedValue(
      new Response(body, { status, headers: { 'Content-Type': 'application/json' } })
    );
}

afterEach(() => {
  jest.restoreAllMocks();
  logIn.mockReset();
});

test('every request has the header of the check against other sites', async () => {
  const fetch = answer('{"n": 1}');
  expect(await api.get('x', read)).toEqual({ n: 1 });
  expect(await api.post('y', { a: 1 }, read).catch(String)).toBeTruthy();
  for (const [, options] of fetch.mock.calls as [string, RequestInit][]) {
    expect((options.headers as Headers).get('X-XSRFToken')).toBe('secret');
    expect(options.redirect).toBe('error');
  }
  expect(fetch).toHaveBeenNthCalledWith(1, '/services/gpu/api/v1/x', expect.anything());
});

test('a refusal has the sentence of the service', async () => {
  answer('{"reason": "Conflict", "message": "Late.", "details": {"version": "9"}}', 409);
  const error = await api.get('x', read).catch((reason: unknown) => reason);
  expect(error).toBeInstanceOf(RefusedError);
  expect(error).toMatchObject({ status: 409, reason: 'Conflict', message: 'Late.' });
});

test('a refusal says when to ask again', async () => {
  const body = '{"reason": "Unavailable", "message": "Busy.", "details": {}}';
  const asked = async (said?: string) => {
    const headers: Record<string, string> = said === undefined ? {} : { 'Retry-After': said };
    jest.spyOn(globalThis, 'fetch').mockResolvedValue(new Response(body, { status: 503, headers }));
    return (await api.get('x', read).catch((reason: unknown) => reason)) as RefusedError;
  };
  expect((await asked('7')).retryAfter).toBe(7000);
  expect((await asked('86400')).retryAfter).toBe(60_000);
  for (const none of [undefined, '-1', 'Fri, 31 Dec 1999 23:59:59 GMT']) {
    expect((await asked(none)).retryAfter).toBe(0);
  }
  expect(pauseAfter(await asked('7'), 0.5)).toBe(10_500);
  expect(pauseAfter(await asked('1'), 0.5)).toBe(5000);
  expect(pauseAfter(new UnreachableError(), 0.5)).toBe(5000);
});

test('a page whose login is not known any more logs in again, and no other', async () => {
  const refused = (details: string) =>
    answer(`{"reason": "NotPermitted", "message": "No.", "details": ${details}}`, 403);
  refused('{"loggedIn": true}');
  await expect(api.get('x', read)).rejects.toBeInstanceOf(RefusedError);
  refused('{}');
  await expect(api.get('x', read)).rejects.toBeInstanceOf(RefusedError);
  expect(logIn).not.toHaveBeenCalled();
  refused('{"loggedIn": false}');
  await expect(api.get('x', read)).rejects.toBeInstanceOf(RefusedError);
  expect(logIn).toHaveBeenCalledTimes(1);
});

test('a login is tried once a minute', () => {
  const kept = new Map<string, string>();
  const storage = {
    getItem: (key: string) => kept.get(key) ?? null,
    setItem: (key: string, value: string) => void kept.set(key, value)
  };
  const reload = jest.fn();
  for (const seconds of [0, 59, 61]) {
    loadAgain(storage, reload, 1e12 + 1000 * seconds);
    expect(reload).toHaveBeenCalledTimes(seconds > 60 ? 2 : 1);
  }
});

test('a page of a proxy is no answer', async () => {
  answer('<html>503</html>', 503);
  await expect(api.get('x', read)).rejects.toBeInstanceOf(UnreachableError);
});

test('an answer of another version is recognized', async () => {
  answer('{"n": "one"}');
  await expect(api.get('x', read)).rejects.toMatchObject({ name: 'BadAnswerError' });
  answer('[');
  await expect(api.get('x', read)).rejects.toMatchObject({ name: 'BadAnswerError' });
});

test('the network is away', async () => {
  jest.spyOn(console, 'warn').mockImplementation();
  jest.spyOn(globalThis, 'fetch').mockRejectedValue(new TypeError('failed'));
  await expect(api.get('x', read)).rejects.toBeInstanceOf(UnreachableError);
});

test('of two cookies the first counts, which has the longest path', () => {
  expect(cookie('a=1; _xsrf="2|x"; _xsrf=other', '_xsrf')).toBe('2|x');
  expect(cookie('xx_xsrf=1', '_xsrf')).toBeNull();
});

test('rows have exactly what the description says', () => {
  const page = { total: 0, page: 1, size: 50, items: [{}], problem: null };
  expect(() => readSubjects(page, '')).toThrow("'items[0].subject' must be an object.");
  expect(() => readMe({}, '')).toThrow("'name'");
});

/** A stream of these texts. */
function stream(...texts: string[]): ReadableStream<Uint8Array> {
  const bytes = new TextEncoder().encode(texts.join(''));
  return new ReadableStream({
    start(controller) {
      for (let i = 0; i < bytes.length; i += 7) {
        controller.enqueue(bytes.slice(i, i + 7)); // cut anywhere
      }
      controller.close();
    }
  });
}

test('events are read wherever they are cut', async () => {
  const found = [];
  for await (const event of events(
    stream(
      'event: changed\ndata: {"users": 1}\n\n',
      ': still here\n\n',
      'data: {"users": 2}\n\n',
      'data: {"us'
    )
  )) {
    found.push(event);
  }
  expect(found).toEqual([{ users: 1 }, null, { users: 2 }]);
  expect(() => readEvent('data: {"users": -1}')).toThrow();
});

test('a connection that ends is opened again, and what is known counts as old', async () => {
  jest.useFakeTimers();
  const told: string[] = [];
  let opened = 0;
  const stop = follow(
    {
      stream: () => Promise.resolve(new Response(stream(`data: {"users": ${(opened += 1)}}\n\n`)))
    },
    {
      counts: counts => told.push(versionOf(counts, 'users', 'limits')),
      live: on => told.push(on ? 'live' : 'lost')
    }
  );
  await jest.advanceTimersByTimeAsync(20_000);
  stop();
  expect(told.slice(0, 5)).toEqual(['live', '1 1 0', 'lost', 'live', '2 2 0']);
  const before = opened;
  await jest.advanceTimersByTimeAsync(60_000);
  expect(opened).toBe(before);
  jest.useRealTimers();
});

test('a connection that the service refuses is tried again as late as it says', async () => {
  jest.useFakeTimers();
  const live = jest.fn();
  const stream = jest.fn(() =>
    Promise.reject<Response>(new RefusedError(503, 'Unavailable', 'Busy.', {}, 30_000))
  );
  const stop = follow({ stream }, { counts: jest.fn(), live });
  await jest.advanceTimersByTimeAsync(29_000);
  expect(stream).toHaveBeenCalledTimes(1);
  await jest.advanceTimersByTimeAsync(32_000);
  expect(stream).toHaveBeenCalledTimes(2);
  expect(live).toHaveBeenCalledWith(false);
  stop();
  jest.useRealTimers();
});
