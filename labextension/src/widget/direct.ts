/** The page's direct connection to its server: REST and the stream. It does not wait for a running cell. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { fields, FieldError, text } from '../api/check';
import { Message } from '../api/message';
import { Answer, Connection, Stream } from '../api/stream';
import { IView, parseView } from '../api/view';
import { IEndpoint } from './endpoint';
import { ILink, IListener, isNewer } from './link';

/** Milliseconds that the server may take to identify itself. */
const PATIENCE = 5000;

/** The instance of the server that the page reaches; empty: none with jupyter-gpu, or none that accepts us. */
export async function instanceAt(where: IEndpoint): Promise<string> {
  try {
    return (await ask(where, AbortSignal.timeout(PATIENCE))).instance;
  } catch {
    return '';
  }
}

/** One stream for all sliders of the page: the first opens it, the last closes it. */
export class DirectLink implements ILink {
  private readonly listeners = new Set<IListener>();
  private readonly curious = new Set<IListener>();
  private stream: Stream | null = null;
  private view: IView | null = null;
  private trouble = '';

  constructor(
    private readonly where: IEndpoint,
    private readonly trans: TranslationBundle
  ) {}

  join(listener: IListener): () => void {
    this.listeners.add(listener);
    if (!this.stream) {
      this.open();
    } else {
      if (this.view) {
        listener.view(this.view);
      }
      listener.trouble(this.trouble);
    }
    return () => {
      this.listeners.delete(listener);
      this.samples(listener, false);
      if (this.listeners.size === 0) {
        this.close();
      }
    };
  }

  async request(milli: number): Promise<void> {
    const { request, headers } = this.where;
    const body = JSON.stringify({ milli, overrule: true });
    let answer: Response;
    try {
      answer = await fetch(request, { ...FETCH, method: 'PUT', headers, body });
    } catch {
      throw new Error(
        this.trans.__('The server did not answer. Nothing is known to have changed.')
      );
    }
    this.show(await read(answer));
  }

  samples(listener: IListener, on: boolean): void {
    (on ? (one: IListener) => this.curious.add(one) : (one: IListener) => this.curious.delete(one))(
      listener
    );
    if (this.stream) {
      this.stream.samples = this.curious.size > 0;
    }
  }

  retry(): void {
    this.stream?.retry();
  }

  private open(): void {
    this.stream = new Stream(() => new WebSocket(this.where.stream), {
      message: message => this.receive(message),
      connection: connection => this.tell(this.describe(connection)),
      ask: () => this.ask()
    });
    this.stream.samples = this.curious.size > 0;
    document.addEventListener('visibilitychange', this.follow);
    this.follow();
  }

  private close(): void {
    document.removeEventListener('visibilitychange', this.follow);
    this.stream?.dispose();
    this.stream = this.view = null;
    this.trouble = '';
  }

  private receive(message: Message): void {
    switch (message.type) {
      case 'view':
        this.show(message.view);
        break;
      case 'history':
        message.points.slice(-KEPT).forEach(point => this.listeners.forEach(l => l.sample(point)));
        break;
      case 'sample':
        this.listeners.forEach(listener => listener.sample(message.sample));
        break;
      case 'error':
        this.tell(message.message);
    }
  }

  private show(view: IView): void {
    if (isNewer(view, this.view)) {
      this.view = view;
      this.listeners.forEach(listener => listener.view(view));
    }
  }

  private tell(trouble: string): void {
    this.trouble = trouble;
    this.listeners.forEach(listener => listener.trouble(trouble));
  }

  private describe(connection: Connection): string {
    switch (connection.state) {
      case 'connecting':
      case 'online':
        return '';
      case 'reconnecting':
        return this.trans.__('The server does not answer; trying again…');
      case 'refused':
        return connection.error.message;
    }
  }

  /** Why it failed, which a WebSocket does not report. */
  private async ask(): Promise<Answer> {
    try {
      this.show(await ask(this.where, AbortSignal.timeout(PATIENCE)));
      return { kind: 'alive' };
    } catch (error) {
      return error instanceof Refusal ? { kind: 'refused', error } : { kind: 'gone' };
    }
  }

  private readonly follow = () => {
    if (this.stream) {
      this.stream.active = document.visibilityState === 'visible';
    }
  };
}

/** Samples of the history that are shown. */
const KEPT = 30;
const FETCH: RequestInit = { credentials: 'same-origin', cache: 'no-store' };

/** The server refused. */
class Refusal extends Error {}

async function ask({ status, headers }: IEndpoint, signal: AbortSignal): Promise<IView> {
  return read(await fetch(status, { ...FETCH, headers, signal }));
}

/** The view in an answer; throws a refusal in the server's own words. */
async function read(answer: Response): Promise<IView> {
  const body = (await answer.json().catch(() => null)) as unknown;
  if (answer.ok) {
    return parseView(body, 'view');
  }
  const away = answer.status >= 502 && answer.status <= 504;
  try {
    const message = fields(body, '').get('message', text(4096));
    throw away ? new Error(message) : new Refusal(message);
  } catch (error) {
    if (error instanceof FieldError) {
      throw new (away ? Error : Refusal)(`${answer.status} ${answer.statusText}`);
    }
    throw error;
  }
}

/** The page's link, stored on the page because sliders are loaded as separate modules. */
export function pageLink(where: IEndpoint, trans: TranslationBundle): ILink {
  const page = globalThis as unknown as Record<symbol, { stream: string; link: ILink } | undefined>;
  const key = Symbol.for('jupyter-gpu.widget-link');
  const known = page[key];
  if (known?.stream === where.stream) {
    return known.link;
  }
  const link = new DirectLink(where, trans);
  page[key] = { stream: where.stream, link };
  return link;
}
