/** The server goes away, comes back, has no GPU, shares its GPUs with another server. */
import { Page } from '@playwright/test';
import { expect, kernelReady, palette, Panel, test } from './fixtures';
import { JupyterServer } from './server';

const LOST = [
  /ERR_CONNECTION_REFUSED/,
  /WebSocket connection/,
  /Failed to (load|fetch)/,
  /NetworkError/
];

/** A server of one test's own; `page` is left before the server ends, which is no error then. */
async function own(
  page: Page,
  server: JupyterServer,
  use: (server: JupyterServer) => Promise<void>
): Promise<void> {
  try {
    await use(await server.start());
    await page.goto('about:blank');
  } finally {
    await server.dispose();
  }
}

test.describe('a server that is killed', () => {
  test.use({ allowed: async ({}, use) => use(LOST) });

  test('is reported, and the panel recovers by itself', async ({ page }) => {
    await own(page, new JupyterServer(), async server => {
      const panel = new Panel(page, server);
      await panel.open();
      await server.request(2);
      await expect(panel.sentence).toHaveText('2 of 4 GPUs attached');
      await server.kill();
      await expect(panel.root.getByText('Reconnecting…').first()).toBeVisible();
      await expect(panel.slider).toBeDisabled();
      await expect(panel.statusItem).toHaveAccessibleName(/not connected/);
      await panel.shot('reconnecting');
      expect(await panel.axe()).toEqual([]);
      await server.restart();
      await expect(panel.slider).toBeEnabled({ timeout: 40_000 });
      await expect(panel.root.getByText('Reconnecting…')).toHaveCount(0);
      await panel.field.fill('1');
      await panel.field.press('Enter');
      await expect(panel.sentence).toHaveText('1 of 4 GPUs attached');
    });
  });
});

test('without a GPU the panel says so, and how to try it out', async ({ page }) => {
  await own(page, new JupyterServer({ gpus: 0 }), async server => {
    const panel = new Panel(page, server);
    await panel.open();
    await expect(panel.root.getByText('There is no GPU here.')).toBeVisible();
    await expect(panel.slider).toHaveCount(0);
    expect(await panel.axe()).toEqual([]);
    await panel.shot('no-gpu');
  });
});

test('a wait shows the place in line, and can be ended with what is attached', async ({
  page,
  panel,
  server
}) => {
  await own(page, new JupyterServer({ state: server.state }), async other => {
    await other.request(3);
    await panel.open();
    await panel.drag(5);
    await expect(panel.sentence).toHaveText(
      '1 of 3: two more when they are free, your server is first in line'
    );
    await expect(panel.statusItem).toHaveText('GPU 1/4…');
    expect(await panel.axe()).toEqual([]);
    await panel.shot('waiting');
    await other.request(2);
    await expect(panel.sentence).toHaveText(
      '2 of 3: one more when it is free, your server is first in line'
    );
    await panel.button('Keep 2 GPUs').click();
    await expect(panel.sentence).toHaveText('2 of 4 GPUs attached');
    await panel.drag(0);
    await expect(panel.sentence).toHaveText('0 of 4 GPUs attached');
  });
});

test.describe('Notebook 7', () => {
  // An error of Notebook itself, with and without this extension: it looks for the settings of plugins that it left out.
  test.use({ allowed: async ({}, use) => use([/reading 'schema'/]) });

  test('the panel works, and shows soft mode', async ({ page }) => {
    const args = ['--GpuExtension.enforcement=soft'];
    await own(page, new JupyterServer({ app: 'notebook', args }), async server => {
      server.notebook('analysis.ipynb', ['1']);
      const panel = new Panel(page, server);
      await page.goto(server.page('tree'));
      await page.getByText('analysis.ipynb').first().waitFor();
      await page.goto(server.page('notebooks/analysis.ipynb'));
      await page.locator('.jp-Notebook').waitFor();
      await kernelReady(page);
      await palette(page, 'Show GPUs');
      await expect(panel.root).toBeVisible();
      await expect(panel.root.getByText('Soft mode', { exact: true })).toBeVisible();
      await panel.drag(4);
      await expect(panel.sentence).toHaveText('2 of 4 GPUs attached');
      expect(await panel.axe()).toEqual([]);
      await panel.shot('notebook', true);
    });
  });
});
