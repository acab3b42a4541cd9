/** The slider in a cell of JupyterLab: themes, traits, language, and a time share with its real use. */
import { execFileSync } from 'child_process';
import { copyFileSync, mkdtempSync, rmSync } from 'fs';
import { tmpdir } from 'os';
import { join, resolve } from 'path';
import { Page } from '@playwright/test';
import { command, expect, kernelReady, Panel, test } from './fixtures';
import { JupyterServer } from './server';

const ROOT = resolve(__dirname, '..', '..', '..');
const THEMES = {
  light: 'JupyterLab Light',
  dark: 'JupyterLab Dark',
  contrast: 'JupyterLab Dark High Contrast'
};

async function open(page: Page, server: JupyterServer, ...cells: string[]): Promise<void> {
  server.notebook('cell.ipynb', cells);
  await page.goto(server.page('lab/tree/cell.ipynb?reset'));
  await kernelReady(page);
  await command(page, 'notebook:run-all-cells');
}

test('a linked box moves the slider, and code observes other changes', async ({
  page,
  panel,
  server
}) => {
  await open(
    page,
    server,
    'import ipywidgets as widgets\nfrom jupyter_gpu import gpu\nslider = gpu.widget()',
    'box = widgets.BoundedFloatText(description="GPUs wanted", max=4)\nwidgets.link((box, "value"), (slider, "value"))\nwidgets.VBox([box, slider])',
    'heard = widgets.Label()\nslider.observe(lambda change: setattr(heard, "value", f"now {change.new:g}"), "attached")\nheard'
  );
  const slider = page
    .locator('.jp-OutputArea')
    .getByRole('slider', { name: 'GPUs for this server' });
  const box = page.getByRole('spinbutton', { name: 'GPUs wanted' });
  await expect(slider).toBeEnabled();
  await box.fill('2');
  await box.press('Enter');
  await expect(slider).toHaveAttribute('aria-valuetext', '2 of 4 GPUs');
  await expect(page.getByText('now 2')).toBeVisible();
  await slider.press('End');
  await expect(box).toHaveValue('4');
  await expect(page.getByText('now 4')).toBeVisible();
  await server.request(1);
  await expect(page.getByText('now 1')).toBeVisible();
  await expect(box).toHaveValue('1');
  expect(await panel.axe('.jp-gpu-InCell')).toEqual([]);
  await panel.shot('traits', true);
});

test('a time share is shown in the panel’s words, readable in each theme', async ({ page }) => {
  test.setTimeout(240_000);
  const driver = mkdtempSync(join(tmpdir(), 'jupyter-gpu-driver-'));
  execFileSync(join(ROOT, 'node_plugin/gate/standin/build.sh'), [driver]);
  const server = await new JupyterServer({
    gpus: 1,
    args: ['--GpuExtension.sample_interval=0.5'],
    env: { LD_LIBRARY_PATH: driver }
  }).start();
  try {
    await server.request(0.5);
    await server.see('half a GPU', view => view.amounts.attached === 500);
    copyFileSync(join(__dirname, 'kernel', 'share.py'), join(server.work, 'share.py'));
    await open(
      page,
      server,
      'from jupyter_gpu import gpu\ngpu',
      `%run share.py ${server.folder} mine steady 90`
    );
    const panel = new Panel(page, server);
    const share = page.getByRole('group', { name: 'Your time share of GPU 0' });
    await expect(share).toContainText('GPU 0: A half, shared · Slice: 50 % of the GPU');
    await expect(share).toContainText(/Guaranteed slice [1-9]\d* %/, { timeout: 40_000 });
    await expect(share).toContainText(/From idle time [1-9]\d* %/, { timeout: 40_000 });
    await expect(share).toContainText(/From the bank \d+ % · .*Waiting \d+ %/);
    await expect(share).toContainText(/Bank: .* of 1 s/);
    for (const [name, theme] of Object.entries(THEMES)) {
      await command(page, 'apputils:change-theme', { theme });
      await page.locator(`body[data-jp-theme-name="${theme}"]`).waitFor({ state: 'attached' });
      expect(await panel.axe('.jp-gpu-InCell')).toEqual([]);
      await panel.shot(`cell-share-${name}`, true);
    }
  } finally {
    await page.close();
    await server.dispose();
    rmSync(driver, { recursive: true });
  }
});
