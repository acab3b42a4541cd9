/**
 * The connection through the kernel, for pages that do not reach its server: Voilà, a gateway, VS Code. The kernel sends
 * the state to a visible page every few seconds, also while a cell runs, so silence means that it is dead. It reads
 * requests only between cells. All of it are messages, which are not saved with the notebook.
 */
import type { TranslationBundle } from '@jupyterlab/translation';
import { fields, FieldError, text } from '../api/check';
import { parseMessage } from '../api/message';
import { IView } from '../api/view';
import { ILink, IListener, isNewer } from './link';

/** The used part of a widget's model in a page. */
export interface IModel {
  get(name: string): unknown;
  on(name: string, callback: (...args: never[]) => void): void;
  off(name: string, callback: (...args: never[]) => void): void;
  send(content: unknown): void;
}

/** Milliseconds: of silence before trouble is shown; between two messages that the page is visible; until a delay is explained. */
export interface ITimes {
  readonly silence: number;
  readonly report: number;
  readonly slow: number;
}

const TIMES: ITimes = { silence: 9000, report: 15_000, slow: 2000 };

/** The connection of one slider. */
export class KernelLink implements ILink {
  private listener: IListener | null = null;
  private view: IView | null = null;
  private heard = false;
  /** There was no message for too long. */
  private silent = false;
  /** It does not reach its server. */
  private lost = false;
  private reports: ReturnType<typeof setInterval> | undefined;
  private watchdog: ReturnType<typeof setTimeout> | undefined;
  private waiting: {
    readonly id: string;
    readonly resolve: () => void;
    readonly reject: (error: Error) => void;
  } | null = null;

  constructor(
    private readonly model: IModel,
    private readonly trans: TranslationBundle,
    private readonly times: ITimes = TIMES
  ) {}

  join(listener: IListener): () => void {
    this.listener = listener;
    this.model.on('msg:custom', this.hear);
    this.model.on('comm_live_update', this.suspect);
    document.addEventListener('visibilitychange', this.reportVisible);
    this.reports = setInterval(this.reportVisible, this.times.report);
    this.reportVisible();
    return () => {
      this.listener = null;
      this.model.off('msg:custom', this.hear);
      this.model.off('comm_live_update', this.suspect);
      document.removeEventListener('visibilitychange', this.reportVisible);
      clearInterval(this.reports);
      clearTimeout(this.watchdog);
      this.fail('');
    };
  }

  request(milli: number): Promise<void> {
    const id = `${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 12)}`;
    const busy = this.trans.__('The kernel is busy. It asks for that when its cell ends.');
    let told = false;
    const slow = setTimeout(() => {
      told = true;
      this.tell(busy);
    }, this.times.slow);
    const answered = new Promise<void>((resolve, reject) => {
      this.waiting = { id, resolve, reject };
    });
    this.send({ type: 'request', id, milli });
    this.reportVisible();
    return answered.finally(() => {
      clearTimeout(slow);
      this.waiting = null;
      if (told && !this.silent) {
        this.tell('');
      }
    });
  }

  samples(): void {
    // The kernel sends them if there is a time share.
  }

  retry(): void {
    this.silent = false;
    this.tell('');
    this.reportVisible();
  }

  private readonly hear = (content: unknown) => {
    try {
      const body = fields(content, 'message');
      if (body.get('type', text(32)) === 'answer') {
        this.answer(body.get('id', text(64)), body.get('error', text(4096)));
      } else {
        this.receive(content);
      }
    } catch (error) {
      if (!(error instanceof FieldError)) {
        throw error;
      }
      console.warn(`jupyter-gpu: a message of the kernel was left out: ${error.message}`);
    }
  };

  private receive(content: unknown): void {
    const message = parseMessage(content);
    this.heardFrom();
    if (message?.type === 'view') {
      if (this.lost) {
        this.lost = false;
        this.tell('');
      }
      if (isNewer(message.view, this.view)) {
        this.view = message.view;
        this.listener?.view(message.view);
      }
    } else if (message?.type === 'sample') {
      this.listener?.sample(message.sample);
    } else if (message?.type === 'error') {
      this.lost = true;
      this.tell(message.message);
    }
  }

  /** The kernel is alive. */
  private heardFrom(): void {
    this.heard = true;
    if (this.silent) {
      this.silent = false;
      this.tell('');
    }
    this.expect();
  }

  private answer(id: string, error: string): void {
    this.heardFrom();
    if (this.waiting?.id === id) {
      if (error) {
        this.waiting.reject(new Error(error));
      } else {
        this.waiting.resolve();
      }
    }
  }

  /** Report that the page is visible. A hidden one sends nothing, so the kernel falls silent, too. */
  private readonly reportVisible = () => {
    if (document.visibilityState === 'visible') {
      this.send({ type: 'visible' });
      if (this.watchdog === undefined) {
        this.expect();
      }
    } else {
      clearTimeout(this.watchdog);
      this.watchdog = undefined;
    }
  };

  /** The kernel's end may have closed; it has a moment to answer. */
  private readonly suspect = () => {
    this.send({ type: 'visible' });
    this.expect(this.times.slow);
  };

  private send(content: unknown): void {
    try {
      this.model.send(content);
    } catch {
      // no connection, which silence will show
    }
  }

  /** Expect a message within `wait`. */
  private expect(wait = this.times.silence): void {
    clearTimeout(this.watchdog);
    this.watchdog = setTimeout(this.fallSilent, wait);
  }

  private readonly fallSilent = () => {
    this.watchdog = undefined;
    this.silent = true;
    const { trans } = this;
    const words = this.heard
      ? trans.__(
          'The kernel does not answer. If it was restarted or has ended, run this cell again.'
        )
      : trans.__('No kernel answers here. Run this cell again, or wait if its kernel is busy.');
    this.fail(words);
    this.tell(words);
  };

  private fail(words: string): void {
    this.waiting?.reject(new Error(words));
  }

  private tell(words: string): void {
    this.listener?.trouble(words);
  }
}
