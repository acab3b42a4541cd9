/** Fixtures: one server for a worker, a page that must stay free of errors, the panel. */
import AxeBuilder from '@axe-core/playwright';
import { expect, Locator, Page, test as base } from '@playwright/test';
import { mkdirSync } from 'fs';
import { join, resolve } from 'path';
import { JupyterServer } from './server';

export { expect };

const SHOTS = process.env.JUPYTER_GPU_SCREENSHOTS ?? resolve(__dirname, '..', 'screenshots');

/** The GPU panel in a page. */
export class Panel {
  readonly root: Locator;
  readonly slider: Locator;
  readonly field: Locator;
  readonly sentence: Locator;
  readonly cards: Locator;
  readonly statusItem: Locator;

  constructor(
    readonly page: Page,
    readonly server: JupyterServer
  ) {
    this.root = page.locator('#jupyter-gpu-panel');
    this.slider = this.root.getByRole('slider', { name: 'GPUs for this server' });
    this.field = this.root.getByRole('textbox', { name: 'Number of GPUs' });
    this.sentence = this.root.locator('.jp-gpu-Sentence');
    this.cards = this.root.locator('.jp-gpu-Card');
    this.statusItem = page.locator('.jp-gpu-StatusItem button');
  }

  /** Open JupyterLab, and the panel by its item in the status bar. */
  async open(): Promise<void> {
    await this.page.goto(this.server.page('lab?reset'));
    await this.page.locator('.jp-Launcher').waitFor(); // takes the focus when it comes
    await this.statusItem.click();
    await expect(this.root).toBeVisible();
  }

  button(name: string | RegExp): Locator {
    return this.root.getByRole('button', { name });
  }

  /** Middle of the thumb at the step `index`. */
  async at(index: number): Promise<{ x: number; y: number }> {
    const box = (await this.slider.boundingBox())!;
    const last = Number(await this.slider.getAttribute('max'));
    return { x: box.x + 8 + ((box.width - 16) * index) / last, y: box.y + box.height / 2 };
  }

  /** Press the mouse on the thumb and move it to the step `index`; release it if `release`. */
  async drag(index: number, release = true): Promise<void> {
    const { mouse } = this.page;
    const from = await this.at(Number(await this.slider.inputValue()));
    const to = await this.at(index);
    await mouse.move(from.x, from.y);
    await mouse.down();
    await mouse.move(to.x, to.y, { steps: 12 });
    if (release) {
      await mouse.up();
    }
  }

  async shot(name: string, whole = false): Promise<void> {
    mkdirSync(SHOTS, { recursive: true });
    const target = whole ? this.page : this.root;
    await target.screenshot({ path: join(SHOTS, `${name}.png`) });
  }

  /** The violations that axe-core finds in `selector`, in words. */
  async axe(selector = '#jupyter-gpu-panel'): Promise<string[]> {
    const { violations } = await new AxeBuilder({ page: this.page }).include(selector).analyze();
    return violations.flatMap(v =>
      v.nodes.map(n => `${v.id}: ${n.html} ${n.failureSummary ?? ''}`)
    );
  }
}

interface ITestFixtures {
  readonly panel: Panel;
  /** Patterns of errors on the console that a test causes on purpose. */
  readonly allowed: RegExp[];
}

interface IWorkerFixtures {
  readonly server: JupyterServer;
}

export const test = base.extend<ITestFixtures, IWorkerFixtures>({
  server: [
    async ({}, use) => {
      const server = new JupyterServer();
      try {
        await use(await server.start());
      } finally {
        await server.dispose();
      }
    },
    { scope: 'worker' }
  ],

  // Chromium reports this whenever an interface of the machine comes or goes, and JupyterLab asks again.
  allowed: async ({}, use) => use([/net::ERR_NETWORK_CHANGED/]),

  page: async ({ page, allowed }, use) => {
    const errors: string[] = [];
    page.on('console', message => {
      if (message.type() === 'error') {
        errors.push(message.text());
      }
    });
    page.on('pageerror', error => errors.push(String(error)));
    await use(page);
    // Tear-down of the page itself is no error of ours: check the messages before it.
    expect(errors.filter(error => !allowed.some(pattern => pattern.test(error)))).toEqual([]);
  },

  panel: async ({ page, server }, use) => {
    await server.reset();
    await use(new Panel(page, server));
  }
});

/** The part of JupyterLab's application that tests use. */
interface IApp {
  readonly commands: { execute(id: string, args?: object): Promise<void> };
  readonly shell: {
    readonly currentWidget: {
      readonly sessionContext?: {
        readonly session?: { readonly kernel?: { connectionStatus: string; status: string } };
      };
    } | null;
  };
}

/** Start one of JupyterLab's commands. */
export async function command(page: Page, id: string, args: object = {}): Promise<void> {
  await page.evaluate(
    ([name, values]) => {
      void (window as unknown as { jupyterapp: IApp }).jupyterapp.commands.execute(name, values);
    },
    [id, args] as const
  );
}

/** Choose `label` in the command palette by keyboard. */
export async function palette(page: Page, label: string): Promise<void> {
  await command(page, 'apputils:activate-command-palette');
  const box = page.locator('#modal-command-palette');
  await box.locator('input').fill(label);
  await expect(box.locator('.lm-CommandPalette-item.lm-mod-active')).toContainText(label);
  await page.keyboard.press('Enter');
}

/** Wait until the notebook in front can run its cells. */
export async function kernelReady(page: Page): Promise<void> {
  await page.waitForFunction(() => {
    const { jupyterapp } = window as unknown as { jupyterapp?: IApp };
    const kernel = jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel;
    return kernel?.connectionStatus === 'connected' && kernel.status === 'idle';
  });
}

/** Records every message of the streams that `page` opens. */
export function listen(page: Page): { opened: number; sent: string[]; received: string[] } {
  const heard = { opened: 0, sent: [] as string[], received: [] as string[] };
  page.on('websocket', socket => {
    if (socket.url().includes('/jupyter-gpu/api/v1/stream')) {
      heard.opened += 1;
      socket.on('framesent', frame => heard.sent.push(String(frame.payload)));
      socket.on('framereceived', frame => heard.received.push(String(frame.payload)));
    }
  });
  return heard;
}
