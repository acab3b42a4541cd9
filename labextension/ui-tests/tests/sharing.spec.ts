/** The card of a time share, with real use of a GPU that two servers share. */
import { execFileSync } from 'child_process';
import { copyFileSync, mkdtempSync, rmSync } from 'fs';
import { tmpdir } from 'os';
import { join, resolve } from 'path';
import { BrowserContext, Locator, Page } from '@playwright/test';
import { command, expect, kernelReady, listen, Panel, test } from './fixtures';
import { JupyterServer, until } from './server';

const ROOT = resolve(__dirname, '..', '..', '..');
const THEMES = { light: 'JupyterLab Light', dark: 'JupyterLab Dark' };
const MS = 40_000; // what a share does follows its use, over seconds

let mine: JupyterServer;
let neighbour: JupyterServer;
/** Folder of the stand-in for the driver, first in the servers' search path. */
let driver: string;

test.beforeAll(async () => {
  test.setTimeout(180_000); // two servers on a busy machine
  driver = mkdtempSync(join(tmpdir(), 'jupyter-gpu-driver-'));
  execFileSync(join(ROOT, 'node_plugin/gate/standin/build.sh'), [driver]);
  const env = { LD_LIBRARY_PATH: driver };
  mine = new JupyterServer({ gpus: 1, args: ['--GpuExtension.sample_interval=0.1'], env });
  neighbour = new JupyterServer({ gpus: 1, state: mine.state, env });
  await mine.start();
  await neighbour.start();
  for (const server of [mine, neighbour]) {
    await server.request(0.5);
    await server.see('half a GPU', view => view.amounts.attached === 500);
  }
});

test.afterAll(async () => {
  await neighbour.dispose();
  await mine.dispose();
  rmSync(driver, { recursive: true });
});

/** A page with a notebook of `server` whose cells do `works`. */
async function open(context: BrowserContext, server: JupyterServer, ...works: string[]) {
  const owner = server === mine ? 'mine' : 'neighbour';
  copyFileSync(join(__dirname, 'kernel', 'share.py'), join(server.work, 'share.py'));
  server.notebook(
    'share.ipynb',
    works.map(work => `%run share.py ${mine.folder} ${owner} ${work}`)
  );
  const page = await context.newPage();
  await page.goto(server.page('lab/tree/share.ipynb?reset'));
  await kernelReady(page);
  return page;
}

/** The share as its card shows it. */
class Card {
  readonly root: Locator;
  readonly bank: Locator;
  readonly changes: Locator;
  readonly summary: Locator;

  constructor(readonly panel: Panel) {
    this.root = panel.root.locator('.jp-gpu-Share');
    this.bank = this.root.getByRole('meter', { name: 'Bank: GPU time saved' });
    this.changes = this.root.getByRole('list', { name: 'Adjustments, newest first' });
    this.summary = this.root.getByText('As a table');
  }

  row(name: string) {
    return this.root.getByRole('row', { name: new RegExp(`^${name}`) }).getByRole('cell');
  }

  async saved(): Promise<number> {
    return Number(await this.bank.getAttribute('aria-valuenow'));
  }

  /** Whether a layer is drawn. */
  async drawn(layer: string): Promise<boolean> {
    const path = this.root.locator(`.jp-gpu-Share-area > path[data-layer=${layer}]`);
    return Boolean(await path.getAttribute('d'));
  }
}

async function showTheme(page: Page, theme: string): Promise<void> {
  await command(page, 'apputils:change-theme', { theme });
  await page.locator(`body[data-jp-theme-name="${theme}"]`).waitFor({ state: 'attached' });
}

test('an idle share lends its half, bursts from its bank and gets its half back', async ({
  context
}) => {
  test.setTimeout(300_000);
  const [page, training] = await Promise.all([
    open(context, mine, 'burst 4'),
    open(context, neighbour, 'steady 300')
  ]);
  const card = new Card(new Panel(page, mine));
  await card.panel.statusItem.click();
  await expect(card.root.getByRole('paragraph').getByText(/^Shared with 1 other/)).toBeVisible();
  await expect(card.panel.root.getByText('not enforced')).toHaveCount(0);
  await expect(card.root.getByText('Slice: 50 % of the GPU')).toBeVisible();

  // By keyboard alone; the table has the picture's values.
  await card.summary.focus();
  await page.keyboard.press('Enter');
  await expect(card.row('Slice')).toHaveText('50 % of the GPU');
  await expect(card.row('Neighbours')).toHaveText(/^Shared with 1 other/);

  // The neighbour trains: it grows by what this one does not use.
  await command(training, 'notebook:run-all-cells');
  await expect(training.locator('.jp-OutputArea-output')).toContainText('works');
  const theirs = new Card(new Panel(training, neighbour));
  await theirs.panel.statusItem.click();
  await expect(theirs.changes.first()).toContainText('Grew by what others do not use.', {
    timeout: MS
  });
  await expect(card.changes).toContainText('Gave what it did not use.', { timeout: MS });
  await expect.poll(() => card.saved(), { timeout: MS }).toBeGreaterThan(0.9);
  await expect(card.bank).toHaveAttribute(
    'aria-valuetext',
    /^.* of 1 s, the next expires in .* s$/
  );

  // A burst: the bank pays, and what was lent is back.
  await command(page, 'notebook:run-all-cells');
  await expect.poll(() => card.saved(), { timeout: MS, intervals: [50] }).toBeLessThan(0.5);
  await expect(card.root.getByText('Slice: 50 % of the GPU')).toBeVisible();
  await expect(card.changes).toContainText('Has its own back.');
  await expect(card.row('From the bank')).not.toHaveText(/ 0 s in all$/);
  for (const layer of ['guaranteed', 'borrowed']) {
    expect(await card.drawn(layer)).toBe(true);
  }
  await expect(theirs.changes).toContainText('Gave back what was only lent.');
  expect(await theirs.drawn('waiting')).toBe(true);
  await expect(card.row('Memory')).toHaveText(/^6\d MiB/);

  // Pictures take long while others compute.
  await command(training, 'notebook:interrupt-kernel');
  await training.close();
  await page.locator('.jp-OutputArea-output').getByText('done').waitFor({ timeout: MS });
  for (const [name, theme] of Object.entries(THEMES)) {
    await showTheme(page, theme);
    expect(await card.panel.axe()).toEqual([]);
    await card.root.scrollIntoViewIfNeeded();
    await card.panel.shot(`share-${name}`);
  }
});

test('the card fits a narrow side bar, as picture and as table', async ({ page }) => {
  const card = new Card(new Panel(page, mine));
  await card.panel.open();
  await card.summary.click();
  await page.setViewportSize({ width: 900, height: 1400 });
  await page.evaluate(() => {
    const { jupyterapp } = window as unknown as {
      jupyterapp: { shell: { _hsplitPanel: { setRelativeSizes(sizes: number[]): void } } };
    };
    jupyterapp.shell._hsplitPanel.setRelativeSizes([0.2, 0.75, 0.05]);
  });
  const fits = () => card.panel.root.evaluate(node => node.scrollWidth <= node.clientWidth);
  expect(await fits()).toBe(true);
  await card.panel.shot('share-narrow');
  await card.panel.root.getByLabel('Show as table').check();
  await expect(card.panel.root.getByRole('table')).toHaveCount(2);
  expect(await card.panel.axe()).toEqual([]);
  await card.panel.root.getByLabel('Show as table').uncheck();
});

test('there are at most ten samples a second, and none without viewers', async ({ page }) => {
  const heard = listen(page);
  const panel = new Panel(page, mine);
  const times = () =>
    heard.received
      .filter(text => text.includes('"type":"sample"'))
      .map(text => (JSON.parse(text) as { sample: { time: number } }).sample.time);
  await panel.open();
  await expect.poll(() => times().length).toBeGreaterThan(12);
  const [first, last] = [times()[0], times()[times().length - 1]];
  expect(times().length - 2).toBeLessThanOrEqual((last - first) / 0.1 + 1);

  await page.locator('.jp-SideBar [data-id="jupyter-gpu-panel"]').click();
  await expect(panel.root).toBeHidden();
  await expect.poll(() => heard.sent.at(-1)).toBe('{"type":"samples","on":false}');
  // As long as they come, they come ten times a second: a second without is the end.
  let before = -1;
  await until('no more samples', async () => {
    const quiet = times().length === before;
    before = times().length;
    await new Promise(done => setTimeout(done, 1000));
    return quiet;
  });
});
