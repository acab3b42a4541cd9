/** Polls the server for data outside the stream, while it is visible. */
import { useEffect, useState } from 'react';
import { Reader } from '../api/check';
import { get } from '../api/request';
import { IGpuModel } from '../model/tokens';

/** The last answer, and the last failure. */
export interface IAnswer<T> {
  readonly known: T | null;
  /** Why the last request failed. */
  readonly failure: Error | null;
}

/** Milliseconds. */
export interface IPace {
  /** Between two requests. */
  readonly pause: number;
  /** From the first to the second request, if the first may return little. */
  readonly second?: number;
}

/**
 * The answer at `path`, polled while `on` and while samples arrive, which stop in a hidden
 * tab and in a panel that is not in view.
 */
export function usePolled<T>(
  model: IGpuModel,
  path: string,
  read: Reader<T>,
  on: boolean,
  { pause, second }: IPace
): IAnswer<T> {
  const [answer, setAnswer] = useState<IAnswer<T>>({ known: null, failure: null });
  useEffect(() => {
    if (!on) {
      return;
    }
    let last = -Infinity;
    let busy = false;
    const controller = new AbortController();
    const ask = async () => {
      if (busy) {
        return;
      }
      busy = true;
      last = Date.now();
      try {
        const known = await get(model.serverSettings, path, read, controller.signal);
        setAnswer({ known, failure: null });
      } catch (reason) {
        if (!controller.signal.aborted) {
          setAnswer(({ known }) => ({ known, failure: reason as Error }));
        }
      } finally {
        busy = false;
      }
    };
    const slot = () => {
      if (Date.now() - last >= pause) {
        void ask();
      }
    };
    void ask();
    const timer = second === undefined ? undefined : setTimeout(() => void ask(), second);
    model.sampled.connect(slot);
    return () => {
      clearTimeout(timer);
      controller.abort();
      model.sampled.disconnect(slot);
    };
  }, [model, path, read, on, pause, second]);
  return answer;
}
