/**
 * The REST calls. Always through the application's own server settings, which know the base URL,
 * the token and the XSRF cookie.
 */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { fields, FieldError, Reader, text } from './check';
import { IView, parseView } from './view';

const API = 'jupyter-gpu/api/v1';

/** A refusal: `reason` is for programs, the message for people. */
export class RefusedError extends Error {
  constructor(
    readonly reason: string,
    message: string,
    readonly status: number
  ) {
    super(message);
    this.name = 'RefusedError';
  }
}

/** No answer: the network, the server, or something between. */
export class UnreachableError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'UnreachableError';
  }
}

/** An answer that violates the contract: another version, or not our server. */
export class BadAnswerError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'BadAnswerError';
  }
}

/** Options that the server keeps from the last request unless they are set. */
const OPTIONS = [
  'each',
  'memory',
  'model',
  'vendor',
  'topology',
  'placement',
  'priority',
  'lendable'
];

/** A request for GPUs, as it is sent: an amount, and the options to change. Other options stay as they are. */
export interface IRequest {
  readonly milli: number;
  /** Bytes of GPU memory of each, or a text such as "20GiB"; `null`: its part again; absent: unchanged. */
  readonly memory?: number | string | null;
  /** Models that will do; `null`: all; absent: unchanged. */
  readonly model?: readonly string[] | null;
  /** `local` or `any`; absent: unchanged. */
  readonly placement?: string;
  /** Whether whole GPUs are lent while they rest; absent: unchanged. */
  readonly lendable?: boolean;
  /** The generation that it is based on: refused as stale if the request was changed meanwhile. */
  readonly generation?: number;
  /** Remove the other options, too. */
  readonly forget?: boolean;
}

/** Return the latest view. Throws one of the errors above. */
export function getStatus(
  settings: ServerConnection.ISettings,
  signal?: AbortSignal
): Promise<IView> {
  return get(settings, 'status', parseView, signal);
}

/** Return the answer at `path`, parsed by `read`. Throws one of the errors above. */
export function get<T>(
  settings: ServerConnection.ISettings,
  path: string,
  read: Reader<T>,
  signal?: AbortSignal
): Promise<T> {
  return call(settings, path, { method: 'GET', signal }, read);
}

/**
 * Record `request`, and return the view after that. It is the user's, so blocks of running code that need more
 * lose their reservations. Throws one of the errors above.
 */
export function putRequest(
  settings: ServerConnection.ISettings,
  request: IRequest,
  signal?: AbortSignal
): Promise<IView> {
  const { forget, ...named } = request;
  const options = forget ? Object.fromEntries(OPTIONS.map(name => [name, null])) : {};
  const body = JSON.stringify({ ...options, ...named, overrule: true });
  const headers = { 'Content-Type': 'application/json' };
  return call(settings, 'request', { method: 'PUT', headers, body, signal }, parseView);
}

/** Address of the stream, with the token if a cookie is not enough. */
export function streamUrl(settings: ServerConnection.ISettings): string {
  const url = URLExt.join(settings.wsUrl, API, 'stream');
  return settings.appendToken && settings.token
    ? `${url}?token=${encodeURIComponent(settings.token)}`
    : url;
}

async function call<T>(
  settings: ServerConnection.ISettings,
  path: string,
  init: RequestInit,
  read: Reader<T>
): Promise<T> {
  const url = URLExt.join(settings.baseUrl, API, path);
  let response: Response;
  let body: string;
  try {
    response = await ServerConnection.makeRequest(url, init, settings);
    body = await response.text();
  } catch (error) {
    throw new UnreachableError(String(error instanceof Error ? error.message : error));
  }
  if (!response.ok) {
    throw refusal(response, body);
  }
  try {
    return read(JSON.parse(body), path);
  } catch (error) {
    if (error instanceof FieldError || error instanceof SyntaxError) {
      throw new BadAnswerError(error.message);
    }
    throw error;
  }
}

/** Gateways answer 502–504 themselves while the server behind them is away. */
function refusal(response: Response, body: string): Error {
  try {
    const error = fields(JSON.parse(body), '');
    return new RefusedError(
      error.get('reason', text(64)),
      error.get('message', text(4096)),
      response.status
    );
  } catch {
    const { status, statusText } = response;
    return status >= 502 && status <= 504
      ? new UnreachableError(`${status} ${statusText}`)
      : new RefusedError('', `${status} ${statusText}`, status);
  }
}
