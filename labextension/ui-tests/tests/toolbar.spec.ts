/** The item in a notebook's toolbar and its popover; and how much a page loads before anything is opened. */
import { Locator, Page } from '@playwright/test';
import { expect, kernelReady, Panel, test } from './fixtures';
import { JupyterServer } from './server';

/** The item of the notebook in front. */
function itemOf(page: Page): Locator {
  return page
    .locator('.jp-NotebookPanel-toolbar .jp-gpu-ToolbarItem button')
    .filter({ visible: true });
}

async function openNotebook(page: Page, server: JupyterServer) {
  server.notebook('analysis.ipynb', ['1']);
  await page.goto(server.page('lab/tree/analysis.ipynb?reset'));
  await kernelReady(page);
  const item = itemOf(page);
  await expect(item).toHaveText('GPU 0/4');
  return { item, popover: page.getByRole('dialog', { name: 'GPUs' }) };
}

test('the slider opens beside the item by keyboard alone, and the focus returns', async ({
  page,
  panel,
  server
}) => {
  const { item, popover } = await openNotebook(page, server);
  await item.focus();
  await page.keyboard.press('Enter');
  const slider = popover.getByRole('slider', { name: 'GPUs for this server' });
  await expect(slider).toBeFocused();
  await expect(item).toHaveAttribute('aria-expanded', 'true');
  for (let step = 0; step < 4; step++) {
    await page.keyboard.press('ArrowRight'); // a quarter, a half, 1, 2
  }
  await expect(popover.locator('.jp-gpu-Sentence')).toHaveText('2 of 4 GPUs attached');
  await expect(item).toHaveText('GPU 2/4');
  await expect(popover.getByRole('status')).toHaveText('2 of 4 GPUs attached');
  await panel.shot('toolbar', true);
  expect(await panel.axe('#jupyter-gpu-popover')).toEqual([]);
  expect(await panel.axe('.jp-gpu-ToolbarItem')).toEqual([]);
  await page.keyboard.press('Escape');
  await expect(popover).toBeHidden();
  await expect(item).toBeFocused();
  await expect(item).toHaveAttribute('aria-expanded', 'false');
});

test('a click opens it, another one or one elsewhere closes it, details show the panel', async ({
  page,
  panel,
  server
}) => {
  const { item, popover } = await openNotebook(page, server);
  await item.click();
  await expect(popover).toBeVisible();
  const [button, box] = [(await item.boundingBox())!, (await popover.boundingBox())!];
  expect(box.y).toBeGreaterThanOrEqual(button.y + button.height);
  expect(box.x + box.width).toBeLessThanOrEqual(1280);
  await item.click();
  await expect(popover).toBeHidden();
  await item.click();
  await expect(popover).toBeVisible();
  await page.locator('.jp-Notebook').click({ position: { x: 200, y: 300 } });
  await expect(popover).toBeHidden();
  await item.click();
  await popover.getByRole('button', { name: 'Show details' }).click();
  await expect(popover).toBeHidden();
  await expect(panel.root).toBeVisible();
});

test('a setting hides the item', async ({ page, server }) => {
  const { item } = await openNotebook(page, server);
  const id = encodeURIComponent('jupyter-gpu:plugin');
  await server.fetch(`lab/api/settings/${id}`, 'PUT', { raw: '{"showInToolbar": false}' });
  await page.reload();
  await kernelReady(page);
  await expect(item).toHaveCount(0);
  await server.fetch(`lab/api/settings/${id}`, 'PUT', { raw: '{}' });
});

test('a page loads at most 60 kB of code before the panel is opened, and charts when they are first shown', async ({
  page,
  panel,
  server
}) => {
  const loaded = new Map<string, Promise<number>>();
  page.on('response', response => {
    const { pathname } = new URL(response.url());
    if (pathname.includes('/extensions/jupyter-gpu/static/') && pathname.endsWith('.js')) {
      loaded.set(
        pathname.split('/').pop()!,
        response.body().then(body => body.length)
      );
    }
  });
  await openNotebook(page, server);
  const before = (await Promise.all(loaded.values())).reduce((a, b) => a + b, 0);
  expect(before).toBeGreaterThan(10_000);
  expect(before).toBeLessThanOrEqual(60_000);
  await panel.statusItem.click();
  await expect(panel.slider).toBeVisible();
  expect([...loaded.keys()].filter(name => name.startsWith('charts'))).toEqual([]);
  await server.request(1);
  await expect(panel.root.locator('canvas')).toHaveCount(2);
  expect([...loaded.keys()].filter(name => name.startsWith('charts'))).toHaveLength(1);
});

test('code that cannot be loaded is reported, and nothing else breaks', async ({
  page,
  panel,
  server,
  allowed
}) => {
  allowed.push(/Failed to load resource/);
  await page.route(/static\/charts\..*\.js/, route => route.abort());
  await page.goto(server.page('lab?reset'));
  await panel.statusItem.click();
  await server.request(1);
  await expect(panel.root.getByText('could not be loaded')).toBeVisible({ timeout: 40_000 });
  await expect(panel.sentence).toHaveText('1 of 4 GPUs attached');
});

test.describe('Notebook 7', () => {
  // An error of Notebook itself, with and without this extension: it looks for the settings of plugins that it left out.
  test.use({ allowed: async ({}, use) => use([/reading 'schema'/]) });

  test('the item is present from the start, and the slider works', async ({ page }) => {
    const server = new JupyterServer({ app: 'notebook' });
    try {
      await server.start();
      server.notebook('analysis.ipynb', ['1']);
      await page.goto(server.page('notebooks/analysis.ipynb'));
      await kernelReady(page);
      const item = itemOf(page);
      await expect(item).toHaveText('GPU 0/4');
      await item.click();
      const popover = page.getByRole('dialog', { name: 'GPUs' });
      const field = popover.getByRole('textbox', { name: 'Number of GPUs' });
      await field.fill('3');
      await field.press('Enter');
      await expect(item).toHaveText('GPU 3/4');
      const panel = new Panel(page, server);
      await panel.shot('notebook-toolbar', true);
      expect(await panel.axe('#jupyter-gpu-popover')).toEqual([]);
      await popover.getByRole('button', { name: 'Show details' }).click();
      await expect(panel.root).toBeVisible();
      await expect(panel.cards).toHaveCount(3);
    } finally {
      await page.goto('about:blank');
      await server.dispose();
    }
  });
});
