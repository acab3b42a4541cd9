/** Real Jupyter servers for the tests: own folders, a free port, a token, simulated GPUs. */
import { ChildProcess, spawn } from 'child_process';
import { randomBytes } from 'crypto';
import {
  createWriteStream,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync
} from 'fs';
import { tmpdir } from 'os';
import { join, resolve } from 'path';

const ROOT = resolve(__dirname, '..', '..', '..');
const LOCAL = join(ROOT, '.venv', 'bin', 'jupyter');
const JUPYTER = process.env.JUPYTER ?? (existsSync(LOCAL) ? LOCAL : 'jupyter');
const API = 'jupyter-gpu/api/v1';

/** The part of a view that tests use. */
export interface IView {
  phase: string;
  version: number;
  mode: string;
  sentence: string;
  amounts: { requested: number; allocated: number; attached: number; draining: number };
  gpus: { uuid: string; index: number; path?: string; state: string; users: unknown[] }[];
}

export interface IOptions {
  /** `lab` or `notebook`. */
  readonly app?: string;
  readonly gpus?: number;
  /** A state directory shared with another server. */
  readonly state?: string;
  /** More words of the command line. */
  readonly args?: readonly string[];
  /** More of the environment. */
  readonly env?: Readonly<Record<string, string>>;
}

/** Wait until `condition` holds; it is asked again every 50 ms. */
export async function until<T>(
  what: string,
  condition: () => Promise<T | null | false> | T | null | false,
  ms = 30_000
): Promise<T> {
  const end = Date.now() + ms;
  for (;;) {
    const value = await condition();
    if (value) {
      return value;
    }
    if (Date.now() > end) {
      throw new Error(`${what}: not within ${ms / 1000} s`);
    }
    await new Promise(again => setTimeout(again, 50));
  }
}

/** A server that can be killed and started again with the same folders and the same port. */
export class JupyterServer {
  readonly folder = mkdtempSync(join(tmpdir(), 'jupyter-gpu-ui-'));
  readonly work = join(this.folder, 'work');
  readonly token = randomBytes(16).toString('hex');
  readonly state: string;
  url = '';

  constructor(private readonly options: IOptions = {}) {
    this.state = options.state ?? join(this.folder, 'state');
    for (const name of [
      'work',
      'home',
      'config',
      'data',
      'runtime',
      'state',
      'settings',
      'path/labextensions'
    ]) {
      mkdirSync(join(this.folder, name), { recursive: true });
    }
    // The built extension and its switch, whether or not the package is installed.
    symlinkSync(
      join(ROOT, 'jupyter_gpu', 'labextension'),
      join(this.folder, 'path/labextensions/jupyter-gpu')
    );
    symlinkSync(
      join(ROOT, 'jupyter_gpu/jupyter-config/server-config'),
      join(this.folder, 'config/jupyter_server_config.d')
    );
    const apputils = join(this.folder, 'settings/@jupyterlab/apputils-extension');
    mkdirSync(apputils, { recursive: true });
    writeFileSync(
      join(apputils, 'notification.jupyterlab-settings'),
      JSON.stringify({ fetchNews: 'false', checkForUpdates: false })
    );
  }

  async start(port = 0): Promise<this> {
    const { app = 'lab', gpus = 4, args = [], env = {} } = this.options;
    const inherited = Object.entries(process.env).filter(([name]) => !/^(JUPYTER|JPY_)/.test(name));
    const child = spawn(
      JUPYTER,
      [
        app,
        '--allow-root',
        '--no-browser',
        `--ServerApp.port=${port}`,
        '--ServerApp.port_retries=0',
        '--LanguageServerManager.autodetect=False', // half a second of a processor
        `--ServerApp.root_dir=${this.work}`,
        `--GpuExtension.simulated_gpus=${gpus}`,
        `--GpuExtension.state_dir=${this.state}`,
        `--${app === 'lab' ? 'LabApp' : 'JupyterNotebookApp'}.expose_app_in_browser=True`,
        ...args
      ],
      {
        cwd: this.work,
        env: {
          ...Object.fromEntries(inherited),
          ...env,
          HOME: join(this.folder, 'home'),
          JUPYTER_CONFIG_DIR: join(this.folder, 'config'),
          JUPYTER_DATA_DIR: join(this.folder, 'data'),
          JUPYTER_RUNTIME_DIR: join(this.folder, 'runtime'),
          JUPYTER_PATH: join(this.folder, 'path'),
          JUPYTERLAB_SETTINGS_DIR: join(this.folder, 'settings'),
          JUPYTERLAB_WORKSPACES_DIR: join(this.folder, 'workspaces'),
          JUPYTER_TOKEN: this.token
        },
        stdio: ['ignore', 'pipe', 'pipe'],
        detached: true // its own group, so that kernels can be ended with it
      }
    );
    this.child = child;
    const log = createWriteStream(join(this.folder, 'server.log'), { flags: 'a' });
    child.stdout.pipe(log, { end: false });
    child.stderr.pipe(log, { end: false });
    const info = join(this.folder, 'runtime', `jpserver-${child.pid}.json`);
    await until(`jupyter ${app}`, () => {
      if (child.exitCode !== null) {
        throw new Error(`jupyter ${app} ended:\n${this.log().slice(-4000)}`);
      }
      return existsSync(info) && readFileSync(info, 'utf-8').includes('"url"');
    });
    const { url, port: chosen } = JSON.parse(readFileSync(info, 'utf-8')) as {
      url: string;
      port: number;
    };
    this.url = `http://127.0.0.1:${chosen}${new URL(url).pathname}`;
    this.port = chosen;
    await until('the first answer', () => this.view().catch(() => null)).catch((error: unknown) => {
      throw new Error(`${String(error)}\n${this.log().slice(-4000)}`);
    });
    return this;
  }

  /** Kill the server alone as `kill -9` does; kernels keep running. */
  async kill(): Promise<void> {
    await this.end('SIGKILL');
  }

  /** Start the same server again, at the same address. */
  restart(): Promise<this> {
    return this.start(this.port);
  }

  /** End everything, and remove the folders. */
  async dispose(): Promise<void> {
    await this.end('SIGTERM');
    const pid = this.child?.pid;
    if (pid) {
      try {
        process.kill(-pid, 'SIGKILL');
      } catch {
        // nothing of the group is left
      }
    }
    // The arbiter of shares ends, and writes a last time, some seconds after the last server. Node's own retries are
    // for Windows only.
    await until(`${this.folder} to be removed`, () => {
      try {
        rmSync(this.folder, { recursive: true, force: true });
        return true;
      } catch {
        return false;
      }
    });
  }

  log(): string {
    return readFileSync(join(this.folder, 'server.log'), 'utf-8');
  }

  /** Address of a page; the token in it logs the browser in. */
  page(path: string): string {
    return `${this.url}${path}${path.includes('?') ? '&' : '?'}token=${this.token}`;
  }

  async fetch(path: string, method = 'GET', body?: unknown): Promise<unknown> {
    const answer = await fetch(this.url + path, {
      method,
      headers: { Authorization: `token ${this.token}`, 'Content-Type': 'application/json' },
      body: body === undefined ? undefined : JSON.stringify(body)
    });
    const text = await answer.text();
    if (!answer.ok) {
      throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    }
    return text ? JSON.parse(text) : null;
  }

  view(): Promise<IView> {
    return this.fetch(`${API}/status`) as Promise<IView>;
  }

  request(gpus: number | string): Promise<IView> {
    return this.fetch(`${API}/request`, 'PUT', { gpus }) as Promise<IView>;
  }

  /** Wait until the view is as `condition` says. */
  async see(what: string, condition: (view: IView) => boolean): Promise<IView> {
    return until(what, async () => {
      const view = await this.view();
      return condition(view) && view;
    });
  }

  /** No kernels, no GPUs. A kernel that is just being restarted cannot be shut down yet: it is tried again. */
  async reset(): Promise<void> {
    for (const kind of ['sessions', 'kernels']) {
      await until(`no ${kind}`, async () => {
        const found = (await this.fetch(`api/${kind}`)) as { id: string }[];
        for (const { id } of found) {
          await this.fetch(`api/${kind}/${id}`, 'DELETE').catch(() => null);
        }
        return found.length === 0;
      });
    }
    await this.request(0);
    await this.see('no GPUs', view => view.phase === 'Idle' && view.gpus.length === 0);
  }

  /** A notebook with these cells in the work folder. */
  notebook(name: string, cells: readonly string[]): void {
    const body = {
      nbformat: 4,
      nbformat_minor: 5,
      metadata: {
        kernelspec: { name: 'python3', display_name: 'Python 3 (ipykernel)', language: 'python' }
      },
      cells: cells.map((source, i) => ({
        id: `c${i}`,
        cell_type: 'code',
        metadata: {},
        source,
        outputs: [],
        execution_count: null
      }))
    };
    writeFileSync(join(this.work, name), JSON.stringify(body));
  }

  private async end(signal: NodeJS.Signals): Promise<void> {
    const child = this.child;
    if (child && child.exitCode === null && child.signalCode === null) {
      const ended = new Promise(done => child.once('exit', done));
      child.kill(signal);
      const late = setTimeout(() => child.kill('SIGKILL'), 15_000);
      await ended;
      clearTimeout(late);
    }
  }

  private child: ChildProcess | null = null;
  private port = 0;
}
