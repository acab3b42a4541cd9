/** The address of the page's own server, and the credentials for it. Pure. */

const API = 'jupyter-gpu/api/v1/';

/** Addresses and headers. */
export interface IEndpoint {
  readonly status: string;
  readonly request: string;
  readonly stream: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** The used part of the page's configuration. */
interface IConfig {
  readonly baseUrl?: unknown;
  readonly token?: unknown;
}

/** The endpoint in the page's configuration; null without one, or if it is on another site, which never gets a token. */
export function endpoint(config: IConfig | null, page: string, cookie: string): IEndpoint | null {
  if (typeof config?.baseUrl !== 'string') {
    return null;
  }
  const base = new URL(config.baseUrl.replace(/\/?$/, '/'), page);
  if (base.origin !== new URL(page).origin) {
    return null;
  }
  const rest = new URL(API, base);
  const stream = new URL('stream', rest);
  stream.protocol = rest.protocol === 'https:' ? 'wss:' : 'ws:';
  const headers: Record<string, string> = { 'Content-Type': 'application/json' };
  const xsrf = /(?:^|;\s*)_xsrf=([^;]*)/.exec(cookie);
  if (typeof config.token === 'string' && config.token) {
    headers.Authorization = `token ${config.token}`;
    stream.searchParams.set('token', config.token);
  } else if (xsrf) {
    headers['X-XSRFToken'] = decodeURIComponent(xsrf[1]);
  }
  const [status, request] = ['status', 'request'].map(name => new URL(name, rest).href);
  return { status, request, stream: stream.href, headers };
}

/** The endpoint of this page. */
export function here(): IEndpoint | null {
  const element = document.getElementById('jupyter-config-data');
  try {
    return endpoint(
      JSON.parse(element?.textContent ?? 'null') as IConfig | null,
      location.href,
      document.cookie
    );
  } catch {
    return null;
  }
}
