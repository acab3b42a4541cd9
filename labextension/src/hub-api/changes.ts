/**
 * The one live connection of a page: server-sent events, read by `fetch` as `EventSource` cannot send a header. They say how often each
 * table has changed; the page asks again for those that it shows.
 */
import { count } from '../api/check';
import { backoff } from '../api/stream';
import { Api, RefusedError } from './call';
import { dictionary } from './limits';

/** Number of changes so far, by table; `connection` counts the connections, as a service that restarts counts anew. */
export type Counts = Readonly<Record<string, number>>;

/** A text that changes whenever one of the tables may have changed. */
export function versionOf(counts: Counts, ...tables: readonly string[]): string {
  return ['connection', ...tables].map(table => counts[table] ?? 0).join(' ');
}

/** A page follows changes until it is disposed. */
export interface IFollower {
  counts(counts: Counts): void;
  /** Whether changes are known to arrive. */
  live(on: boolean): void;
}

/** Milliseconds of silence after which the connection counts as dead: the service says something each 20 s. */
const SILENCE = 45_000;

/** Follow changes, and connect again when the connection ends; returns how to stop. */
export function follow(api: Pick<Api, 'stream'>, follower: IFollower): () => void {
  const stop = new AbortController();
  void run(api, follower, stop.signal);
  return () => stop.abort();
}

async function run(
  api: Pick<Api, 'stream'>,
  follower: IFollower,
  signal: AbortSignal
): Promise<void> {
  const ended = () => signal.aborted;
  for (let connection = 1, attempt = 0; !ended(); connection += 1, attempt += 1) {
    const { begun, retryAfter } = await once(api, follower, signal, connection);
    if (begun) {
      attempt = 0;
    }
    if (!ended()) {
      follower.live(false);
      const random = Math.random();
      const pause = Math.max(backoff(attempt, random), retryAfter * (1 + random));
      await new Promise(again => setTimeout(again, pause));
    }
  }
}

/** Follow one connection until it ends; whether anything came on it, and the pause that the service asks for. */
async function once(
  api: Pick<Api, 'stream'>,
  follower: IFollower,
  signal: AbortSignal,
  connection: number
): Promise<{ readonly begun: boolean; readonly retryAfter: number }> {
  const stop = new AbortController();
  const end = () => stop.abort();
  signal.addEventListener('abort', end);
  let watchdog: ReturnType<typeof setTimeout> | undefined;
  let begun = false;
  let retryAfter = 0;
  try {
    const answer = await api.stream(stop.signal);
    for await (const event of events(answer.body!)) {
      clearTimeout(watchdog);
      watchdog = setTimeout(end, SILENCE);
      begun = true;
      follower.live(true);
      if (event) {
        follower.counts({ ...event, connection });
      }
    }
  } catch (error) {
    // The page's own requests say what is wrong.
    retryAfter = error instanceof RefusedError ? error.retryAfter : 0;
  } finally {
    clearTimeout(watchdog);
    signal.removeEventListener('abort', end);
  }
  return { begun, retryAfter };
}

/** The events of a stream; `null` for a comment, which says that the service is there. */
export async function* events(body: ReadableStream<Uint8Array>): AsyncGenerator<Counts | null> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) {
        return;
      }
      const blocks = (rest + decoder.decode(value, { stream: true })).split('\n\n');
      rest = blocks.pop()!;
      for (const block of blocks) {
        yield readEvent(block);
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

/** One event: a block of lines. */
export function readEvent(block: string): Counts | null {
  const data = block
    .split('\n')
    .filter(line => line.startsWith('data:'))
    .map(line => line.slice(5).trim())
    .join('\n');
  return data ? dictionary(JSON.parse(data), 'data', count) : null;
}
