/** Calls of the hub's service, with the header that its check against other sites wants, reads included. */
import { fields, FieldError, maybe, Reader, text } from '../api/check';

/** A refusal: `reason` is for programs, the message for people. */
export class RefusedError extends Error {
  constructor(
    readonly status: number,
    readonly reason: string,
    message: string,
    readonly details: Readonly<Record<string, unknown>> = {},
    /** Milliseconds after which it is worth asking again, as the service says; 0: it says nothing. */
    readonly retryAfter = 0
  ) {
    super(message);
    this.name = 'RefusedError';
  }
}

/** No answer: the network, the hub's proxy, or the service. */
export class UnreachableError extends Error {
  constructor() {
    super('The service did not answer.');
    this.name = 'UnreachableError';
  }
}

/** An answer that violates the contract: another version, or not the service. */
export class BadAnswerError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'BadAnswerError';
  }
}

/** The place of the service, and the value of the header. */
export interface IService {
  /** Path of the service, with a slash at its end. */
  readonly base: string;
  /** The value now: a login in another tab changes it. */
  xsrf(): string;
  /** Log in again, as the service does not know this page's login any more; not while somebody types. */
  logIn(): void;
}

/** The service that sent this page. */
export function ownService(base: string, token: string): IService {
  return {
    base,
    xsrf: () => cookie(document.cookie, '_xsrf') ?? token,
    logIn() {
      if (!document.activeElement?.matches('input, select, textarea')) {
        loadAgain(sessionStorage, () => location.reload());
      }
    }
  };
}

/** Milliseconds: no longer pause is made, whatever a proxy between says. */
const LONGEST_PAUSE = 60_000;

/** Milliseconds between two attempts to log in: one that brings no login must not go on in circles. */
const LOGIN_PAUSE = 60_000;
const LOGIN_KEY = 'jupyter-gpu:login';

/** Load the page again, which logs in by the hub and comes back, unless that was done a moment ago. */
export function loadAgain(
  storage: Pick<Storage, 'getItem' | 'setItem'>,
  reload: () => void,
  now = Date.now()
): void {
  const last = Number(storage.getItem(LOGIN_KEY) ?? 0);
  if (!(Math.abs(now - last) < LOGIN_PAUSE)) {
    storage.setItem(LOGIN_KEY, String(now));
    reload();
  }
}

/** The first cookie of a name, which is the one with the longest path; `null`: there is none. */
export function cookie(cookies: string, name: string): string | null {
  const found = cookies.split(/;\s*/).find(item => item.startsWith(`${name}=`));
  return found ? found.slice(name.length + 1).replace(/^"(.*)"$/, '$1') : null;
}

/** The REST of the service. Every call throws one of the errors above, or what `AbortSignal` throws. */
export class Api {
  constructor(private readonly service: IService) {}

  /** Address of a file that a link downloads. */
  address(path: string): string {
    return `${this.service.base}api/v1/${path}`;
  }

  /** The answer at `path`, parsed by `read`. */
  async get<T>(path: string, read: Reader<T>, signal?: AbortSignal): Promise<T> {
    return parse(await this.send(path, { signal }), read);
  }

  /** The answer to `body`. */
  async post<T>(path: string, body: unknown, read: Reader<T>): Promise<T> {
    const headers = { 'Content-Type': 'application/json' };
    return parse(
      await this.send(path, { method: 'POST', body: JSON.stringify(body), headers }),
      read
    );
  }

  /** The stream of changes, as an open answer. */
  stream(signal: AbortSignal): Promise<Response> {
    return this.send('events', { signal, cache: 'no-store' });
  }

  private async send(path: string, options: RequestInit): Promise<Response> {
    const headers = new Headers(options.headers);
    headers.set('X-XSRFToken', this.service.xsrf());
    let answer: Response;
    try {
      answer = await fetch(this.address(path), {
        credentials: 'same-origin',
        redirect: 'error',
        ...options,
        headers
      });
    } catch (error) {
      options.signal?.throwIfAborted();
      console.warn('jupyter-gpu: no answer:', error);
      throw new UnreachableError();
    }
    if (!answer.ok) {
      const error = await refusal(answer);
      if (error instanceof RefusedError && error.details.loggedIn === false) {
        this.service.logIn();
      }
      throw error;
    }
    return answer;
  }
}

async function parse<T>(answer: Response, read: Reader<T>): Promise<T> {
  try {
    return read(await bodyOf(answer), '');
  } catch (error) {
    if (error instanceof FieldError || error instanceof SyntaxError) {
      throw new BadAnswerError(error.message);
    }
    throw error;
  }
}

/** The service answers with JSON; a proxy between, with anything. */
async function refusal(answer: Response): Promise<Error> {
  try {
    const body = fields(await bodyOf(answer), '');
    const details = body.get(
      'details',
      maybe(value => value as Record<string, unknown>, {})
    );
    const [reason, message] = [body.get('reason', text(64)), body.get('message', text(20_000))];
    const seconds = Number(answer.headers.get('Retry-After') ?? 0);
    const retryAfter = seconds > 0 ? Math.min(1000 * seconds, LONGEST_PAUSE) : 0;
    return new RefusedError(answer.status, reason, message, details, retryAfter);
  } catch (error) {
    if (error instanceof FieldError || error instanceof SyntaxError) {
      return new UnreachableError();
    }
    throw error;
  }
}

/** The JSON of an answer, which may break off; throws a `SyntaxError` for what is none. */
async function bodyOf(answer: Response): Promise<unknown> {
  let body: string;
  try {
    body = await answer.text();
  } catch {
    throw new UnreachableError();
  }
  return JSON.parse(body) as unknown;
}
