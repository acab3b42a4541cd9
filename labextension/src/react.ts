/** Hooks that join React to the model's signals. */
import type { ISignal } from '@lumino/signaling';
import { useEffect, useReducer } from 'react';

/** Render again whenever `signal` is emitted. */
export function useSignal(signal: ISignal<unknown, void>): void {
  const [, again] = useReducer((n: number) => n + 1, 0);
  useEffect(() => {
    const slot = () => again();
    signal.connect(slot);
    again(); // what was emitted between the first rendering and now
    return () => {
      signal.disconnect(slot);
    };
  }, [signal]);
}

/** Milliseconds between two pictures at least: ten a second are enough for the eye. */
const FRAME = 100;

/** Render again when `signal` was emitted, at most ten times a second and never in a hidden tab. */
export function useFrames(signal: ISignal<unknown, void>): void {
  const [, again] = useReducer((n: number) => n + 1, 0);
  useEffect(() => {
    let request = 0;
    let last = -Infinity;
    const frame = (now: number) => {
      if (now - last < FRAME) {
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
