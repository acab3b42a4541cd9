/** Other front ends than JupyterLab: programs that are started beside a server, and a page like VS Code's. */
import { ChildProcess, spawn } from 'child_process';
import { createWriteStream, mkdirSync, mkdtempSync, rmSync } from 'fs';
import { createServer } from 'net';
import { tmpdir } from 'os';
import { join, resolve } from 'path';
import { BrowserContext, Page } from '@playwright/test';
import { JupyterServer, until } from './server';

const ROOT = resolve(__dirname, '..', '..', '..');
/** Folder of Voilà and the Kernel Gateway: not beside our server, whose extension Voilà would become. */
export const FRONTS = join(ROOT, '.cache', 'fronts');
const PYTHON = join(ROOT, '.venv', 'bin', 'python');

/** A free port. */
async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>(done => server.listen(0, '127.0.0.1', done));
  const { port } = server.address() as { port: number };
  await new Promise(done => server.close(done));
  return port;
}

/** A program with folders of its own that serves HTTP. */
export class Program {
  readonly folder = mkdtempSync(join(tmpdir(), 'jupyter-gpu-front-'));
  url = '';

  /** `command` is given its port; it answers once `path` does. */
  async start(
    command: (port: number) => readonly string[],
    path = '',
    env: Readonly<Record<string, string>> = {}
  ): Promise<this> {
    const port = await freePort();
    this.url = `http://127.0.0.1:${port}/`;
    for (const name of ['home', 'runtime', 'data']) {
      mkdirSync(join(this.folder, name));
    }
    const inherited = Object.entries(process.env).filter(([name]) => !/^(JUPYTER|JPY_)/.test(name));
    const child = spawn(PYTHON, command(port), {
      cwd: this.folder,
      env: {
        ...Object.fromEntries(inherited),
        HOME: join(this.folder, 'home'),
        JUPYTER_RUNTIME_DIR: join(this.folder, 'runtime'),
        JUPYTER_DATA_DIR: join(this.folder, 'data'),
        JUPYTER_PATH: join(FRONTS, 'share', 'jupyter'),
        PYTHONPATH: FRONTS,
        ...env
      },
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true
    });
    this.child = child;
    const log = createWriteStream(join(this.folder, 'log'));
    child.stdout.pipe(log);
    child.stderr.pipe(log);
    await until(command(port).join(' '), () =>
      fetch(this.url + path).then(
        answer => answer.status < 500,
        () => false
      )
    );
    return this;
  }

  dispose(): void {
    const pid = this.child?.pid;
    if (pid) {
      try {
        process.kill(-pid, 'SIGKILL');
      } catch {
        // it has ended
      }
    }
    rmSync(this.folder, { recursive: true, force: true });
  }

  private child: ChildProcess | null = null;
}

/** The used part of a Jupyter message. */
interface IMessage {
  readonly header: { readonly msg_type: string };
  readonly content: {
    readonly comm_id?: string;
    readonly target_name?: string;
    readonly data?: {
      readonly method?: string;
      readonly state?: object;
      readonly content?: object;
    };
  };
}

/**
 * The slider in a page like VS Code's: the extension talks to the kernel, and the page may not talk to any server. The
 * test plays the part between; kernel, messages, model and the slider's module are real.
 */
export class Webview {
  /** The page with the slider. */
  page!: Page;

  constructor(
    private readonly context: BrowserContext,
    private readonly server: JupyterServer,
    readonly kernel: string
  ) {}

  /** Run `code`, whose end shows a slider, and show it. */
  async open(code: string): Promise<void> {
    const host = (this.host = await this.context.newPage());
    await host.goto(`${this.server.url}static/logo/logo.png`); // any page of that server without rules of its own
    const models = new Map<string, Record<string, unknown>>();
    let shown: string | null = null;
    const early: object[] = [];
    await host.exposeFunction('heard', async (text: string) => {
      const { header, content } = JSON.parse(text) as IMessage;
      const id = content.comm_id ?? '';
      if (header.msg_type === 'comm_open') {
        models.set(id, { ...content.data!.state });
        if ('_esm' in models.get(id)!) {
          shown = id;
        }
      } else if (header.msg_type === 'comm_msg' && id === shown) {
        if (this.page as Page | undefined) {
          await this.page.evaluate(
            data => (window as unknown as IView).fromKernel(data),
            content.data!
          );
        } else {
          early.push(content.data!);
        }
      }
    });
    await host.evaluate(
      ([kernel, token]) => {
        const url = new URL(`../../api/kernels/${kernel}/channels?token=${token}`, location.href);
        url.protocol = 'ws:';
        const socket = new WebSocket(url);
        const view = window as unknown as { heard(text: string): void; socket: WebSocket };
        view.socket = socket;
        socket.onmessage = event => {
          const message = JSON.parse(String(event.data)) as { channel: string };
          if (message.channel === 'iopub') {
            view.heard(String(event.data));
          }
        };
        return new Promise<void>((done, failed) => {
          socket.onopen = () => done();
          socket.onerror = () => failed(new Error('no connection to the kernel'));
        });
      },
      [this.kernel, this.server.token] as const
    );
    await this.run(code);
    const state = await until('the slider', () => (shown && models.get(shown)) || null);
    this.comm = shown!;
    const page = await this.context.newPage();
    await page.exposeFunction('toKernel', (data: object) =>
      this.send('comm_msg', { comm_id: this.comm, data })
    );
    await page.route('https://webview.example/', route =>
      route.fulfill({
        contentType: 'text/html',
        headers: {
          'Content-Security-Policy':
            "default-src 'none'; connect-src 'none'; script-src blob: 'unsafe-inline'; style-src 'unsafe-inline'"
        },
        body: '<!doctype html><html lang="en"><title>Webview</title><main id="cell"></main></html>'
      })
    );
    await page.goto('https://webview.example/');
    await page.evaluate(mount, state);
    for (const data of early) {
      await page.evaluate(one => (window as unknown as IView).fromKernel(one), data);
    }
    this.page = page;
  }

  /** Run `code` in the kernel; does not wait. */
  run(code: string): Promise<void> {
    return this.send('execute_request', {
      code,
      silent: false,
      store_history: false,
      stop_on_error: false
    });
  }

  private async send(type: string, content: object): Promise<void> {
    await this.host.evaluate(
      ([msg_type, body]) => {
        const header = {
          msg_id: String(Math.random()),
          msg_type,
          session: 'webview',
          username: '',
          version: '5.3',
          date: new Date().toISOString()
        };
        const message = {
          channel: 'shell',
          header,
          parent_header: {},
          metadata: {},
          content: body,
          buffers: []
        };
        (window as unknown as { socket: WebSocket }).socket.send(JSON.stringify(message));
      },
      [type, content] as const
    );
  }

  private host!: Page;
  private comm = '';
}

interface IView {
  fromKernel(data: object): void;
  toKernel(data: object): void;
}

/** In the page: a widget's model as anywidget hands it out, and the slider in it. */
async function mount(state: Record<string, unknown>): Promise<void> {
  const view = window as unknown as IView;
  const heard = new Map<string, Set<(content?: unknown) => void>>();
  const tell = (name: string, content?: unknown) => heard.get(name)?.forEach(one => one(content));
  const model = {
    get: (name: string) => state[name],
    on: (name: string, callback: () => void) =>
      heard.set(name, (heard.get(name) ?? new Set()).add(callback)),
    off: (name: string, callback: () => void) => heard.get(name)?.delete(callback),
    send: (content: object) => view.toKernel({ method: 'custom', content })
  };
  view.fromKernel = data => {
    const {
      method,
      content,
      state: changed
    } = data as {
      method: string;
      content?: object;
      state?: object;
    };
    if (method === 'custom') {
      tell('msg:custom', content);
    } else if (method === 'update') {
      Object.assign(state, changed);
      Object.keys(changed ?? {}).forEach(name => tell(`change:${name}`));
    }
  };
  const style = document.createElement('style');
  style.textContent = String(state._css);
  document.head.append(style);
  const url = URL.createObjectURL(new Blob([String(state._esm)], { type: 'text/javascript' }));
  const module = (await import(url)) as {
    default: { render(cell: { model: object; el: HTMLElement }): void };
  };
  module.default.render({ model, el: document.getElementById('cell')! });
}

/** Start a kernel on `server`; its id. */
export async function startKernel(server: JupyterServer): Promise<string> {
  const { id } = (await server.fetch('api/kernels', 'POST', { name: 'python3' })) as { id: string };
  return id;
}
