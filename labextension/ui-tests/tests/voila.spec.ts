/** A dashboard of Voilà: the page has no JupyterLab, and its server may not be the one with the GPUs. */
import AxeBuilder from '@axe-core/playwright';
import { Page } from '@playwright/test';
import { mkdirSync, symlinkSync } from 'fs';
import { join, resolve } from 'path';
import { expect, test } from './fixtures';
import { FRONTS, Program } from './fronts';
import { JupyterServer } from './server';

const SHOTS = resolve(__dirname, '..', 'screenshots');
const CELLS = ['from jupyter_gpu import gpu\ngpu.widget()'];

// Voilà's pages have fonts and formulas from the internet, and ask for what we do not serve.
test.use({ allowed: async ({}, use) => use([/./]) });

test.beforeEach(async ({ page }) => {
  await page.route(/^https:/, route => route.abort());
});

const of = (page: Page) => ({
  slider: page.getByRole('slider', { name: 'GPUs for' }),
  line: page.locator('.jp-gpu-InCell').getByRole('status'),
  alert: page.locator('.jp-gpu-InCell').getByRole('alert')
});

test('alone, with kernels that know their server, works through the kernel', async ({
  page,
  server
}) => {
  test.setTimeout(120_000);
  await server.reset();
  server.notebook('dashboard.ipynb', CELLS);
  const voila = await new Program().start(
    port => ['-m', 'voila', join(server.work, 'dashboard.ipynb'), '--no-browser', `--port=${port}`],
    'voila/static/nothing',
    { JUPYTER_GPU_URL: server.url, JUPYTER_GPU_TOKEN: server.token }
  );
  try {
    await page.goto(voila.url);
    const { slider, line } = of(page);
    await expect(line).toHaveText('0 of 4 GPUs attached (simulated)', { timeout: 40_000 });
    await slider.press('End');
    await expect(line).toHaveText('4 of 4 GPUs attached (simulated)');
    await server.request(1);
    await expect(slider).toHaveAttribute('aria-valuetext', '1 of 4 GPUs');
    const { violations } = await new AxeBuilder({ page }).include('.jp-gpu-InCell').analyze();
    expect(violations.map(one => one.id)).toEqual([]);
    mkdirSync(SHOTS, { recursive: true });
    await page.screenshot({ path: join(SHOTS, 'voila.png') });
  } finally {
    await page.close();
    voila.dispose();
  }
});

test('alone, without a server with jupyter-gpu, says so', async ({ page, server }) => {
  test.setTimeout(120_000);
  server.notebook('dashboard.ipynb', CELLS);
  const voila = await new Program().start(
    port => ['-m', 'voila', join(server.work, 'dashboard.ipynb'), '--no-browser', `--port=${port}`],
    'voila/static/nothing'
  );
  try {
    await page.goto(voila.url);
    const { slider, alert } = of(page);
    await expect(alert).toContainText('No Jupyter server was found', { timeout: 40_000 });
    await expect(slider).toBeDisabled();
  } finally {
    await page.close();
    voila.dispose();
  }
});

test('works as an extension of the server that has the GPUs', async ({ page }) => {
  test.setTimeout(120_000);
  const server = new JupyterServer({
    gpus: 3,
    env: { PYTHONPATH: FRONTS },
    args: ["--ServerApp.jpserver_extensions={'voila.server_extension': True}"]
  });
  symlinkSync(join(FRONTS, 'share', 'jupyter', 'voila'), join(server.folder, 'path', 'voila'));
  try {
    await server.start();
    server.notebook('dashboard.ipynb', CELLS);
    await page.goto(server.page('voila/render/dashboard.ipynb'));
    const { slider, line } = of(page);
    await expect(line).toHaveText('0 of 3 GPUs attached (simulated)', { timeout: 40_000 });
    await slider.press('End');
    await expect(line).toHaveText('3 of 3 GPUs attached (simulated)');
    await server.request(1);
    await expect(slider).toHaveAttribute('aria-valuetext', '1 of 3 GPUs');
  } finally {
    await page.close(); // before what it talks to
    await server.dispose();
  }
});
