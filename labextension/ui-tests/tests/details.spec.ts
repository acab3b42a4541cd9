/** Details of a GPU: the line on its card opens to limits, rates and memory by program. */
import { copyFileSync } from 'fs';
import { join } from 'path';
import { Page } from '@playwright/test';
import { command, expect, kernelReady, test } from './fixtures';
import { JupyterServer } from './server';

const THEMES = { light: 'JupyterLab Light', dark: 'JupyterLab Dark' };

async function work(page: Page, server: JupyterServer): Promise<void> {
  copyFileSync(join(__dirname, 'kernel', 'work.py'), join(server.work, 'work.py'));
  server.notebook('training.ipynb', ['%run work.py']);
  await page.goto(server.page('lab/tree/training.ipynb?reset'));
  await kernelReady(page);
  await command(page, 'notebook:run-all-cells');
  await expect(page.locator('.jp-OutputArea-output').first()).toContainText('working');
}

test('opens by keyboard; shows the GPU’s values and the notebook that has its memory', async ({
  page,
  panel,
  server
}) => {
  await server.request(2);
  const asked: string[] = [];
  page.on('request', request => {
    if (request.url().includes('/v1/details')) {
      asked.push(request.url());
    }
  });
  await work(page, server);
  await panel.statusItem.click();
  const card = panel.cards.first();
  const line = card.locator('.jp-gpu-Details summary');
  await expect(line).toHaveAccessibleName(/Details of GPU 0: \d+ °C · \d+ W/);
  await expect(line).toContainText(/\d+ °C · \d+ W/);
  expect(asked, 'no details are open yet').toEqual([]);

  await line.focus();
  await page.keyboard.press('Enter');
  const details = card.locator('.jp-gpu-Details');
  await expect(details).toContainText(/Temperature\d+ °C, slows down at 90 °C/);
  await expect(details).toContainText(/Power\d+ of 300 W/);
  await expect(details).toContainText(/PCIe[1-9][\d.]* GB\/s in, [1-9][\d.]* GB\/s out/);
  await expect(details).toContainText(/NVLink[1-9][\d.]* GB\/s in/);
  const memory = details.getByRole('table', { name: 'Memory of GPU 0 by program' });
  await expect(memory.getByRole('row', { name: /training\.ipynb 14\.4 GiB/ })).toBeVisible();
  for (const [name, theme] of Object.entries(THEMES)) {
    await command(page, 'apputils:change-theme', { theme });
    await page.locator(`body[data-jp-theme-name="${theme}"]`).waitFor({ state: 'attached' });
    await card.scrollIntoViewIfNeeded();
    expect(await panel.axe()).toEqual([]);
    await panel.shot(`details-${name}`);
  }

  const first = asked.length;
  await expect.poll(() => asked.length, { timeout: 15_000 }).toBeGreaterThan(first + 1);
  await page.keyboard.press('Enter');
  await expect(memory).toHaveCount(0);
  const closed = asked.length;
  await page.waitForTimeout(4500);
  expect(asked.length, 'nothing is requested that is not visible').toBeLessThanOrEqual(closed + 1);
});

test('is below the table as well, in a narrow side bar', async ({ page, panel, server }) => {
  await server.request(2);
  await work(page, server);
  await panel.statusItem.click();
  await panel.root.getByLabel('Show as table').check();
  await panel.root.getByText('Details of GPU 1').click();
  await expect(panel.root.getByRole('table', { name: 'Memory of GPU 1 by program' })).toBeVisible();
  await page.setViewportSize({ width: 700, height: 1000 });
  expect(await panel.axe()).toEqual([]);
  await panel.shot('details-table');
  await panel.root.getByLabel('Show as table').uncheck();
  await panel.cards.first().getByText('Details').click();
  await expect(panel.cards.first()).toContainText('slows down at');
  await panel.cards.first().scrollIntoViewIfNeeded();
  await panel.shot('details-narrow');
  const [inner, outer] = await panel.root.evaluate(node => [node.scrollWidth, node.clientWidth]);
  expect(inner).toBeLessThanOrEqual(outer);
});
