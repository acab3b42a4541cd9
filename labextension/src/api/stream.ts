/**
 * The one WebSocket of this browser tab: opens it, opens it again with back-off when it is lost,
 * and tells the server whether samples are wanted. The model interprets the messages.
 */
import { IDisposable } from '@lumino/disposable';
import { FieldError } from './check';
import { Message, parseMessage } from './message';

/** State of the connection. */
export type Connection =
  | { readonly state: 'connecting' }
  | { readonly state: 'online' }
  /** Lost. `retryAt` is the time (ms since the epoch) of the next attempt, `null` while one runs or none is planned. */
  | { readonly state: 'reconnecting'; readonly retryAt: number | null }
  /** The server refused, so there is no automatic retry. */
  | { readonly state: 'refused'; readonly error: Error };

/** Callbacks of the stream. */
export interface IHandlers {
  message(message: Message): void;
  connection(connection: Connection): void;
  /** Ask the server by other means: a browser does not report why a connection failed or fell silent. */
  ask(): Promise<Answer>;
}

/** Result of asking. */
export type Answer =
  | { readonly kind: 'alive' }
  | { readonly kind: 'gone' }
  | { readonly kind: 'refused'; readonly error: Error };

/** Times in milliseconds. */
export interface ITimes {
  readonly first: number;
  readonly longest: number;
  /** After so long without a message, ask whether the server is still there. */
  readonly silence: number;
}

const TIMES: ITimes = { first: 500, longest: 30_000, silence: 20_000 };

/** Delay before attempt `n` (0 is the first): doubles up to a bound, spread so that tabs do not retry all at once. */
export function backoff(n: number, random: number, times: ITimes = TIMES): number {
  return Math.min(times.longest, times.first * 2 ** Math.min(n, 20)) * (0.5 + random / 2);
}

/** A WebSocket that reconnects. */
export class Stream implements IDisposable {
  private state: Connection = { state: 'connecting' };
  private socket: WebSocket | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private watchdog: ReturnType<typeof setTimeout> | undefined;
  private attempt = 0;
  private asking = false;
  private wanted = false;
  private mayRetry = true;
  private disposed = false;

  constructor(
    private readonly open: () => WebSocket,
    private readonly handlers: IHandlers,
    private readonly times: ITimes = TIMES
  ) {
    this.connect();
  }

  get isDisposed(): boolean {
    return this.disposed;
  }

  /** Whether samples are wanted; without them the server sends changes only. */
  set samples(on: boolean) {
    if (on !== this.wanted) {
      this.wanted = on;
      this.tell();
      this.listen();
    }
  }

  get samples(): boolean {
    return this.wanted;
  }

  /** Whether to retry while the connection is lost: not in a hidden tab. */
  set active(on: boolean) {
    if (on !== this.mayRetry) {
      this.mayRetry = on;
      if (on && this.state.state === 'reconnecting') {
        this.retry();
      } else if (!on) {
        this.unschedule();
      }
    }
  }

  /** Try now, unless a connection is open or being opened. */
  retry(): void {
    if (!this.disposed && !this.socket && !this.asking) {
      this.unschedule();
      this.connect();
    }
  }

  dispose(): void {
    this.disposed = true;
    this.unschedule();
    this.drop();
  }

  private connect(): void {
    if (this.state.state !== 'connecting') {
      this.enter({ state: 'reconnecting', retryAt: null });
    }
    let opened = false;
    let socket: WebSocket;
    try {
      socket = this.open();
    } catch {
      void this.lost(false);
      return;
    }
    this.socket = socket;
    socket.onopen = () => {
      opened = true;
      this.tell();
      this.listen();
    };
    socket.onmessage = event => this.receive(event.data);
    socket.onerror = () => undefined; // has no details; a close follows
    socket.onclose = () => {
      this.drop();
      void this.lost(opened);
    };
  }

  private async lost(wasOpen: boolean): Promise<void> {
    this.enter({ state: 'reconnecting', retryAt: null });
    if (!wasOpen) {
      this.asking = true;
      const answer = await this.handlers.ask();
      this.asking = false;
      if (this.disposed) {
        return;
      }
      if (answer.kind === 'refused') {
        this.enter({ state: 'refused', error: answer.error });
        return;
      }
    }
    this.schedule();
  }

  private schedule(): void {
    if (this.disposed || !this.mayRetry) {
      return;
    }
    const delay = backoff(this.attempt, Math.random(), this.times);
    this.attempt += 1;
    this.enter({ state: 'reconnecting', retryAt: Date.now() + delay });
    this.timer = setTimeout(() => this.retry(), delay);
  }

  private unschedule(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
  }

  private receive(data: unknown): void {
    this.listen();
    let message: Message | null;
    try {
      message = parseMessage(JSON.parse(String(data)));
    } catch (error) {
      if (!(error instanceof FieldError || error instanceof SyntaxError)) {
        throw error;
      }
      console.warn(`jupyter-gpu: a message of the server was left out: ${error.message}`);
      return;
    }
    if (message) {
      // Opening is not enough: a server that cannot serve sends an error and closes.
      if (message.type !== 'error' && this.state.state !== 'online') {
        this.attempt = 0;
        this.enter({ state: 'online' });
      }
      this.handlers.message(message);
    }
  }

  private tell(): void {
    if (this.socket?.readyState === 1) {
      this.socket.send(JSON.stringify({ type: 'samples', on: this.wanted }));
    }
  }

  /** While samples are on, a message comes every second or so: after a long silence, ask. */
  private listen(): void {
    clearTimeout(this.watchdog);
    if (this.wanted && this.socket?.readyState === 1) {
      this.watchdog = setTimeout(() => void this.check(), this.times.silence);
    }
  }

  private async check(): Promise<void> {
    const suspect = this.socket;
    const answer = await this.handlers.ask();
    if (this.disposed || this.socket !== suspect) {
      return;
    }
    if (answer.kind === 'alive') {
      this.listen();
    } else {
      this.drop();
      void this.lost(true);
    }
  }

  /** Forget the socket; its further messages are ignored. */
  private drop(): void {
    clearTimeout(this.watchdog);
    const socket = this.socket;
    this.socket = null;
    if (socket) {
      socket.onopen = socket.onmessage = socket.onclose = null;
      socket.close();
    }
  }

  private enter(state: Connection): void {
    if (!this.disposed) {
      this.state = state;
      this.handlers.connection(state);
    }
  }
}
