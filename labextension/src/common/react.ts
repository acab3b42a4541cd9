/** Hooks that join React to the model's signals. */
import type { ISignal } from '@lumino/signaling';
import { useEffect, useReducer } from 'react';

/** Render again whenever `signal` is emitted. */
export function useSignal(signal: ISignal<unknown, void>): void {
  const [, again] = useReducer((n: number) => n + 1, 0);
  useEffect(() => {
    const slot = () => again();
    signal.connect(slot);
    again(); // for signals between the first rendering and now
    return () => {
      signal.disconnect(slot);
    };
  }, [signal]);
}

/** The least milliseconds between two renderings: ten a second are enough for the eye. */
const FRAME = 100;
/** The same for users who asked for less motion. */
const CALM_FRAME = 1000;

/** Whether the user asked for less motion. */
const calm = () =>
  typeof matchMedia === 'function' && matchMedia('(prefers-reduced-motion: reduce)').matches;

/**
 * Render again when `signal` was emitted, at most ten times a second (once, with less motion) and never in a
 * hidden tab.
 */
export function useFrames(signal: ISignal<unknown, void>): void {
  const [, again] = useReducer((n: number) => n + 1, 0);
  useEffect(() => {
    let request = 0;
    let last = -Infinity;
    const pause = calm() ? CALM_FRAME : FRAME;
    const frame = (now: number) => {
      if (now - last < pause) {
        request = requestAnimationFrame(frame);
        return;
      }
      request = 0;
      last = now;
      again();
    };
    const slot = () => {
      request ||= requestAnimationFrame(frame);
    };
    signal.connect(slot);
    slot();
    return () => {
      signal.disconnect(slot);
      cancelAnimationFrame(request);
    };
  }, [signal]);
}
