/** The button below one of our errors works; if it would do nothing, the box says what to type. */
import { Page } from '@playwright/test';
import { command, expect, kernelReady, Panel, test } from './fixtures';
import { JupyterServer } from './server';

async function fail(page: Page): Promise<void> {
  await kernelReady(page);
  await command(page, 'notebook:run-all-cells');
  await expect(page.locator('.jp-OutputArea')).toContainText('Only 4 GPUs here can serve this');
}

test('in JupyterLab the button opens the panel, and the fold shows the traceback', async ({
  page,
  panel,
  server
}) => {
  server.notebook('wrong.ipynb', ['from jupyter_gpu import gpu\ngpu.resize(9)']);
  await page.goto(server.page('lab/tree/wrong.ipynb?reset'));
  await fail(page);
  const area = page.locator('.jp-OutputArea').first();
  await expect(area.getByText('Type gpu in a cell')).toBeHidden();
  await expect(panel.root).toBeHidden();
  await area.getByRole('button', { name: 'Open GPUs' }).click();
  await expect(panel.root).toBeVisible();
  await area.getByText('The whole traceback').click();
  await expect(area.locator('details pre')).toContainText('jupyter_gpu/kernel/api.py');
  expect(await panel.axe('.jp-OutputArea details')).toEqual([]);
  await panel.shot('error', true);
});

test.describe('Notebook 7', () => {
  test.use({ allowed: async ({}, use) => use([/reading 'schema'/]) }); // its own

  test('in Notebook 7 the button opens the panel', async ({ page }) => {
    const server = await new JupyterServer({ app: 'notebook' }).start();
    try {
      server.notebook('wrong.ipynb', ['from jupyter_gpu import gpu\ngpu.resize(9)']);
      await page.goto(server.page('notebooks/wrong.ipynb'));
      await fail(page);
      const panel = new Panel(page, server);
      await page.getByRole('button', { name: 'Open GPUs' }).click();
      await expect(panel.root).toBeVisible();
    } finally {
      await page.close(); // before what it talks to
      await server.dispose();
    }
  });
});

test.describe('without our extension', () => {
  test.use({ allowed: async ({}, use) => use([/./]) });

  test('the box says what to type instead', async ({ page, server }) => {
    server.notebook('wrong.ipynb', ['from jupyter_gpu import gpu\ngpu.resize(9)']);
    // As if it were not installed in the front end's environment.
    await page.route('**/extensions/jupyter-gpu/**', route => route.abort());
    await page.goto(server.page('lab/tree/wrong.ipynb?reset'));
    await fail(page);
    await expect(page.getByText('Type gpu in a cell to see and change your GPUs.')).toBeVisible();
    await expect(page.getByRole('button', { name: 'Open GPUs' })).toBeHidden();
  });
});
