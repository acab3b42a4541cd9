/** What connects a slider with its server: the page's own way (`direct.ts`), or through the kernel (`through-kernel.ts`). */
import { IView, ISample } from '../api';

/** What a slider hears. */
export interface IListener {
  /** What is so now; never older than before. */
  view(view: IView): void;
  /** How time shares are used. */
  sample(sample: ISample): void;
  /** What is wrong with the connection, and what to do; empty: nothing. */
  trouble(text: string): void;
}

/** A connection. */
export interface ILink {
  /** Hear of it from now on; returns how to leave. */
  join(listener: IListener): () => void;
  /** Ask for so much. Throws an error whose message is for people. */
  wish(milli: number): Promise<void>;
  /** `listener` wants samples, or no more. */
  samples(listener: IListener, on: boolean): void;
  /** Try now, instead of later. */
  retry(): void;
}

/** Whether `next` replaces `now`: a later version, or any version of another run of the server. */
export function isNewer(next: IView, now: IView | null): boolean {
  return !now || next.instance !== now.instance || next.version > now.version;
}
