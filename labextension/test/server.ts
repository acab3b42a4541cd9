/** A small real server for the tests: HTTP and WebSocket on a free port, with the test's answers. */
import { ServerConnection } from '@jupyterlab/services';
import { createServer, IncomingMessage, Server, ServerResponse } from 'http';
import { AddressInfo } from 'net';
import { WebSocket as NodeSocket, WebSocketServer } from 'ws';
import { golden } from './golden';

/** A request of a client, which the test answers when it wants to. */
export interface IAsked {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: unknown;
  answer(status: number, body: unknown): void;
  hangUp(): void;
}

/** A view with `changes`, from the golden ones. */
export function view(changes: Record<string, unknown> = {}): Record<string, unknown> {
  return { ...(golden('views')[0].view as Record<string, unknown>), instance: 'one', ...changes };
}

/** Wait until `condition` gives something, looking at every turn of the event loop. */
export async function until<T>(
  condition: () => T | null | undefined | false | 0,
  ms = 4000
): Promise<T> {
  const end = Date.now() + ms;
  for (;;) {
    const value = condition();
    if (value) {
      return value;
    }
    if (Date.now() > end) {
      throw new Error(`not within ${ms} ms: ${condition.toString()}`);
    }
    await new Promise(resolve => setTimeout(resolve, 5));
  }
}

export class FakeServer {
  /** Requests that were not answered yet, oldest first. */
  readonly asked: IAsked[] = [];
  /** Messages of clients on the stream. */
  readonly heard: unknown[] = [];
  readonly sockets: NodeSocket[] = [];
  /** Number of streams opened so far. */
  opened = 0;
  /** Paths of the streams, with their queries. */
  readonly urls: string[] = [];
  /** HTTP status with which streams are refused; 0: they are opened. */
  refuse = 0;
  /** Messages to send to each client that connects. */
  greeting: unknown[] = [];
  port = 0;

  async start(port = 0): Promise<void> {
    this.http = createServer((request, response) => this.take(request, response));
    this.streams = new WebSocketServer({ noServer: true });
    this.http.on('upgrade', (request, socket, head) => {
      this.urls.push(request.url ?? '');
      if (this.refuse) {
        socket.end(`HTTP/1.1 ${this.refuse} No\r\nConnection: close\r\n\r\n`);
        return;
      }
      this.streams!.handleUpgrade(request, socket, head, client => {
        this.opened += 1;
        this.sockets.push(client);
        client.on('message', data => this.heard.push(JSON.parse((data as Buffer).toString())));
        this.greeting.forEach(message => client.send(JSON.stringify(message)));
      });
    });
    await new Promise<void>(resolve => this.http!.listen(port, '127.0.0.1', resolve));
    this.port = (this.http.address() as AddressInfo).port;
  }

  /** As `kill -9` does: every connection breaks. */
  async stop(): Promise<void> {
    this.sockets.splice(0).forEach(socket => socket.terminate());
    const http = this.http;
    this.http = null;
    if (http) {
      http.closeAllConnections();
      await new Promise(resolve => http.close(resolve));
    }
  }

  say(message: unknown): void {
    this.sockets.at(-1)!.send(JSON.stringify(message));
  }

  settings(options: Partial<ServerConnection.ISettings> = {}): ServerConnection.ISettings {
    return ServerConnection.makeSettings({
      baseUrl: `http://127.0.0.1:${this.port}/a%40b/`,
      wsUrl: `ws://127.0.0.1:${this.port}/a%40b/`,
      WebSocket: NodeSocket as unknown as typeof WebSocket,
      fetch,
      Request,
      Headers,
      token: 'se cret',
      appendToken: true,
      ...options
    });
  }

  private take(request: IncomingMessage, response: ServerResponse): void {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const text = Buffer.concat(chunks).toString();
      this.asked.push({
        method: request.method ?? '',
        path: request.url ?? '',
        headers: request.headers,
        body: text ? JSON.parse(text) : null,
        answer: (status, body) => {
          response.writeHead(status, { 'Content-Type': 'application/json' });
          response.end(typeof body === 'string' ? body : JSON.stringify(body));
        },
        hangUp: () => request.socket.destroy()
      });
    });
  }

  private http: Server | null = null;
  private streams: WebSocketServer | null = null;
}
