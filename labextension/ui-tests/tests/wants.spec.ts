/** A notebook that records the GPUs it wants: one click takes them, and nothing happens without one. */
import { readFileSync, writeFileSync } from 'fs';
import { join } from 'path';
import { Locator, Page } from '@playwright/test';
import { command, expect, kernelReady, palette, Panel, test } from './fixtures';
import { JupyterServer } from './server';

const NAME = 'analysis.ipynb';

/** The notebook's file, with `gpu` in its metadata. */
function write(server: JupyterServer, gpu?: unknown): void {
  server.notebook(NAME, ['1']);
  const path = join(server.work, NAME);
  const body = JSON.parse(readFileSync(path, 'utf-8')) as { metadata: Record<string, unknown> };
  if (gpu !== undefined) {
    body.metadata.jupyter_gpu = gpu;
  }
  writeFileSync(path, JSON.stringify(body));
}

/** The metadata in the file; `undefined` also while it is being written. */
function saved(server: JupyterServer): unknown {
  try {
    const text = readFileSync(join(server.work, NAME), 'utf-8');
    return (JSON.parse(text) as { metadata: Record<string, unknown> }).metadata.jupyter_gpu;
  } catch {
    return undefined;
  }
}

async function open(page: Page, server: JupyterServer): Promise<Locator> {
  await page.goto(server.page(`lab/tree/${NAME}?reset`));
  await kernelReady(page);
  const toolbar = page.locator('.jp-NotebookPanel-toolbar .jp-gpu-ToolbarItem');
  await expect(toolbar.getByText(/^GPU \d/)).toBeVisible();
  return toolbar;
}

test('one click takes the GPUs, and nothing happens without it; wants are edited by keyboard', async ({
  page,
  panel,
  server
}) => {
  const asked: string[] = [];
  page.on('request', request => {
    if (request.method() === 'PUT' && request.url().includes('/jupyter-gpu/')) {
      asked.push(request.postData() ?? '');
    }
  });
  write(server, { wants: { gpus: 2 }, other: 'stays' });
  const toolbar = await open(page, server);
  const take = toolbar.getByRole('button', { name: 'Take 2 GPUs: this notebook wants 2 GPUs' });
  await expect(take).toHaveText('Take 2 GPUs');
  expect(await panel.axe('.jp-gpu-ToolbarItem')).toEqual([]);
  await panel.shot('wants', true);
  expect(asked).toEqual([]);
  await take.click();
  await expect(toolbar.getByText('GPU 2/4')).toBeVisible();
  await expect(take).toHaveCount(0);
  expect(asked).toEqual(['{"milli":2000,"overrule":true}']);

  // Another number, remembered in the popover.
  await server.request(3);
  const item = toolbar.getByText('GPU 3/4');
  await item.click();
  const popover = page.getByRole('dialog', { name: 'GPUs' });
  await expect(popover.getByText('This notebook wants 2 GPUs.')).toBeVisible();
  expect(await panel.axe('#jupyter-gpu-popover')).toEqual([]);
  await panel.shot('wants-popover', true);
  await popover.getByRole('button', { name: 'Remember 3 GPUs in this notebook' }).press('Enter');
  await expect(popover.getByText('This notebook wants 3 GPUs.')).toBeVisible();
  await page.keyboard.press('Escape');
  await command(page, 'docmanager:save');
  await expect.poll(() => saved(server)).toEqual({ wants: { gpus: 3 }, other: 'stays' });

  // From the panel, and by the palette.
  await server.request(0);
  await panel.statusItem.click();
  await expect(panel.root.getByText('This notebook wants 3 GPUs.')).toBeVisible();
  await panel.button('Take 3 GPUs').click();
  await expect(panel.sentence).toHaveText('3 of 4 GPUs attached');
  await panel.button('Forget what it wants').click();
  await command(page, 'docmanager:save');
  await expect.poll(() => saved(server)).toEqual({ other: 'stays' });
  await server.request(1);
  await expect(panel.sentence).toHaveText('1 of 4 GPUs attached');
  await palette(page, 'Remember These GPUs in This Notebook');
  await expect(panel.root.getByText('This notebook wants 1 GPU.')).toBeVisible();
  await server.request(0);
  await expect(panel.button('Take 1 GPU')).toBeVisible();
  await palette(page, 'Take the GPUs That This Notebook Wants');
  await expect(panel.sentence).toHaveText('1 of 4 GPUs attached');
  // A collaborator with the same notebook open sees it at once.
  await page.evaluate(() => {
    const { jupyterapp } = window as unknown as {
      jupyterapp: {
        shell: {
          currentWidget: {
            content: {
              model: { sharedModel: { setMetadata(key: string, value: unknown): void } };
            };
          };
        };
      };
    };
    const { sharedModel } = jupyterapp.shell.currentWidget.content.model;
    sharedModel.setMetadata('jupyter_gpu', { wants: { gpus: 4 } });
  });
  await expect(panel.root.getByText('This notebook wants 4 GPUs.')).toBeVisible();
  await expect(toolbar.getByText('Take 4 GPUs')).toBeVisible();
});

test('invalid wants are reported and ignored', async ({ page, server }) => {
  write(server, { wants: { gpus: '<img src=x onerror=alert(1)>' } });
  const toolbar = await open(page, server);
  await expect(toolbar.getByRole('button')).toHaveCount(1);
  await toolbar.getByRole('button').click();
  const popover = page.getByRole('dialog', { name: 'GPUs' });
  await expect(popover).toContainText(
    "What this notebook says of the GPUs that it wants is not understood, and ignored: 'jupyter_gpu.wants.gpus' must be a number"
  );
  await expect(popover.locator('img')).toHaveCount(0);
});

test.describe('Notebook 7, with a lower limit', () => {
  // An error of Notebook itself, with and without this extension: it looks for the settings of plugins that it left out.
  test.use({ allowed: async ({}, use) => use([/reading 'schema'/]) });

  test('the button takes what the limit allows, and says so', async ({ page }) => {
    const server = new JupyterServer({ app: 'notebook', args: ['--GpuExtension.limit=2'] });
    try {
      await server.start();
      write(server, { wants: { gpus: 8, memory: '1GiB' } });
      await page.goto(server.page(`notebooks/${NAME}`));
      await kernelReady(page);
      const toolbar = page.locator('.jp-NotebookPanel-toolbar .jp-gpu-ToolbarItem');
      const take = toolbar.getByRole('button', {
        name: 'Take 2 GPUs: this notebook wants 8 GPUs with 1GiB each, and your limit is 2 GPUs'
      });
      await take.click();
      await expect(toolbar.getByText('GPU 2/2')).toBeVisible();
      await expect(take).toHaveCount(0);
      const view = (await server.view()) as unknown as { requested: { memory: number } };
      expect(view.requested.memory).toBe(2 ** 30);
      await toolbar.getByText('GPU 2/2').click();
      const popover = page.getByRole('dialog', { name: 'GPUs' });
      await expect(popover).toContainText(
        'This notebook wants 8 GPUs with 1GiB each; your limit is 2 GPUs.'
      );
      const panel = new Panel(page, server);
      expect(await panel.axe('#jupyter-gpu-popover')).toEqual([]);
      await panel.shot('wants-notebook', true);
    } finally {
      await page.goto('about:blank');
      await server.dispose();
    }
  });
});
