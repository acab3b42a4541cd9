/**
 * The page's model of this server's GPUs: the newest view, the samples, the request under way.
 *
 * Two rules keep it correct in any order of arrival. A view replaces another only if it is newer, by
 * (instance, version, revision). And requests are sent one at a time, the newest next, so the server gets them in the
 * order in which they were made, and the answer to an older request never hides a newer one.
 */
import { ServerConnection } from '@jupyterlab/services';
import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';
import { Message } from '../api/message';
import {
  BadAnswerError,
  getStatus,
  IRequest,
  putRequest,
  RefusedError,
  streamUrl
} from '../api/request';
import { Answer, Connection, ITimes, Stream } from '../api/stream';
import { IView } from '../api/view';
import { History } from '../history/history';
import { IFailure, IGpuModel } from './tokens';

/** Samples kept: an hour at one a second. */
const CAPACITY = 3600;
/** Milliseconds after which a call counts as lost. */
const PATIENCE = 30_000;

interface IPending {
  readonly request: IRequest;
  readonly done: (recorded: boolean) => void;
}

/** The model behind the panel, the status bar and the commands. */
export class GpuModel implements IGpuModel {
  readonly history = new History(CAPACITY);
  private readonly stream: Stream;
  private readonly calls = new Set<AbortController>();
  private readonly pastInstances = new Set<string>();
  private readonly _changed = new Signal<this, void>(this);
  private readonly _sampled = new Signal<this, void>(this);
  private _view: IView | null = null;
  private _connection: Connection = { state: 'connecting' };
  private _failure: IFailure | null = null;
  private sending: IPending | null = null;
  private next: IPending | null = null;
  private watchers = 0;
  private shown = true;

  constructor(
    readonly serverSettings: ServerConnection.ISettings,
    times?: ITimes
  ) {
    this.stream = new Stream(
      () => new serverSettings.WebSocket(streamUrl(serverSettings)),
      {
        message: message => this.receive(message),
        connection: connection => {
          this._connection = connection;
          this._changed.emit();
        },
        ask: () => this.ask()
      },
      times
    );
  }

  get view(): IView | null {
    return this._view;
  }

  get connection(): Connection {
    return this._connection;
  }

  get wanted(): number | null {
    return (this.next ?? this.sending)?.request.milli ?? null;
  }

  get failure(): IFailure | null {
    return this._failure;
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get sampled(): ISignal<this, void> {
    return this._sampled;
  }

  get isDisposed(): boolean {
    return this.stream.isDisposed;
  }

  /** Whether this tab is visible. */
  set visible(visible: boolean) {
    this.shown = visible;
    this.stream.active = visible;
    this.stream.samples = visible && this.watchers > 0;
  }

  watch(): IDisposable {
    this.watchers += 1;
    this.visible = this.shown;
    let isDisposed = false;
    const dispose = () => {
      if (!isDisposed) {
        isDisposed = true;
        this.watchers -= 1;
        this.visible = this.shown;
      }
    };
    return {
      get isDisposed() {
        return isDisposed;
      },
      dispose
    };
  }

  get watched(): boolean {
    return this.watchers > 0;
  }

  request(request: IRequest): Promise<boolean> {
    return new Promise(done => {
      this.next?.done(false);
      this.next = { request, done };
      this._failure = null;
      this._changed.emit();
      if (!this.sending) {
        void this.send();
      }
    });
  }

  retry(): void {
    if (this._failure?.request) {
      void this.request(this._failure.request);
    }
  }

  dismiss(): void {
    this._failure = null;
    this._changed.emit();
  }

  reconnect(): void {
    this.stream.retry();
  }

  dispose(): void {
    if (!this.isDisposed) {
      this.stream.dispose();
      this.calls.forEach(call => call.abort());
      this.next?.done(false);
      this.next = null;
      Signal.clearData(this);
    }
  }

  /** Have all that shows the model show it again: there are better words for it. */
  refresh(): void {
    this._changed.emit();
  }

  /** Take `view` if it is newer; return whether it was taken. */
  accept(view: IView): boolean {
    const old = this._view;
    if (this.pastInstances.has(view.instance)) {
      return false;
    }
    if (
      old &&
      old.instance === view.instance &&
      (view.version - old.version || view.revision - old.revision) <= 0
    ) {
      return false;
    }
    if (old && old.instance !== view.instance) {
      this.pastInstances.add(old.instance);
    }
    this._view = view;
    this._changed.emit();
    return true;
  }

  private async send(): Promise<void> {
    while (this.next) {
      const pending = (this.sending = this.next);
      this.next = null;
      try {
        this.accept(
          await this.call(signal => putRequest(this.serverSettings, pending.request, signal))
        );
        pending.done(true);
      } catch (error) {
        // After a newer request the failure of this one does not matter.
        if (!this.superseded) {
          this._failure = { error: error as Error, request: pending.request };
        }
        pending.done(false);
      }
    }
    this.sending = null;
    this._changed.emit();
  }

  private get superseded(): boolean {
    return this.next !== null;
  }

  private async ask(): Promise<Answer> {
    try {
      this.accept(await this.call(signal => getStatus(this.serverSettings, signal)));
      return { kind: 'alive' };
    } catch (error) {
      return (error instanceof RefusedError && error.status < 500) ||
        error instanceof BadAnswerError
        ? { kind: 'refused', error }
        : { kind: 'gone' };
    }
  }

  private async call<T>(make: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const controller = new AbortController();
    const timer = setTimeout(() => controller.abort(), PATIENCE);
    this.calls.add(controller);
    try {
      return await make(controller.signal);
    } finally {
      clearTimeout(timer);
      this.calls.delete(controller);
    }
  }

  private receive(message: Message): void {
    switch (message.type) {
      case 'view':
        if (this._failure?.request === null) {
          this._failure = null; // of the last connection
        }
        this.accept(message.view);
        break;
      case 'history':
        this.history.reset(message.interval, message.points);
        this._sampled.emit();
        break;
      case 'sample':
        if (this.history.push(message.sample)) {
          this._sampled.emit();
        }
        break;
      case 'error':
        this._failure = {
          error: new RefusedError(message.reason, message.message, 503),
          request: null
        };
        this._changed.emit();
        break;
    }
  }
}
