/** Answers of the service that are shown, asked for again when they change. */
import { useEffect, useRef, useState } from 'react';
import { Reader } from '../api/check';
import { Api, RefusedError } from '../hub-api/call';

/** The newest answer, and what went wrong since. */
export interface IResource<T> {
  readonly value: T | null;
  readonly error: Error | null;
  /** Whether the answer is that of an earlier address. */
  readonly stale: boolean;
}

/** Milliseconds before an address that gave no answer is asked again. */
const AGAIN = 5000;

/** Milliseconds before the next attempt: as the service says, and not all pages at the same moment. */
export function pauseAfter(error: unknown, random: number): number {
  const said = error instanceof RefusedError ? error.retryAfter : 0;
  return Math.max(AGAIN, said * (1 + random));
}

/**
 * The answer at `path`, asked for again whenever `version` changes. The last answer is kept meanwhile; `path` `null`: nothing is
 * asked for.
 */
export function useResource<T>(
  api: Api,
  path: string | null,
  read: Reader<T>,
  version: unknown
): IResource<T> {
  const [state, setState] = useState<{ path: string | null; value: T | null; error: Error | null }>(
    { path: null, value: null, error: null }
  );
  const [attempt, setAttempt] = useState(0);
  const reader = useRef(read);
  useEffect(() => {
    if (path === null) {
      return;
    }
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    api.get(path, reader.current, stop.signal).then(
      value => setState({ path, value, error: null }),
      (error: unknown) => {
        if (!stop.signal.aborted) {
          setState(before => ({ ...before, error: error as Error }));
          timer = setTimeout(() => setAttempt(n => n + 1), pauseAfter(error, Math.random()));
        }
      }
    );
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [api, path, version, attempt]);
  return { value: state.value, error: state.error, stale: state.path !== path };
}
