/** The connection of a slider to its server: direct (`direct.ts`), or through the kernel (`through-kernel.ts`). */
import { ISample } from '../api/sample';
import { IView } from '../api/view';

/** Callbacks of a connection. */
export interface IListener {
  /** The current view; never older than before. */
  view(view: IView): void;
  /** The use of time shares. */
  sample(sample: ISample): void;
  /** Trouble with the connection, and what to do; empty: none. */
  trouble(text: string): void;
}

/** A connection. */
export interface ILink {
  /** Add a listener; returns how to remove it. */
  join(listener: IListener): () => void;
  /** Ask for so much. Throws an error whose message is for people. */
  request(milli: number): Promise<void>;
  /** `listener` wants samples, or no more. */
  samples(listener: IListener, on: boolean): void;
  /** Try to connect now, instead of later. */
  retry(): void;
}

/** Whether `next` replaces `now`: a later version, or any version of another run of the server. */
export function isNewer(next: IView, now: IView | null): boolean {
  return !now || next.instance !== now.instance || next.version > now.version;
}
