/** Requests by mouse, by keyboard, by number and in code, while a cell is running. */
import { copyFileSync } from 'fs';
import { join } from 'path';
import { Page } from '@playwright/test';
import { command, expect, kernelReady, listen, test } from './fixtures';
import { JupyterServer } from './server';

/** Open a notebook whose cell runs `script` with `args`, and run it; the output of the cell. */
async function run(page: Page, server: JupyterServer, script: string, args: string) {
  copyFileSync(join(__dirname, 'kernel', script), join(server.work, script));
  server.notebook('analysis.ipynb', [`%run ${script} ${args}`]);
  await page.goto(server.page('lab/tree/analysis.ipynb?reset'));
  await kernelReady(page);
  await command(page, 'notebook:run-all-cells');
  return page.locator('.jp-OutputArea-output').first();
}

test('dragging while a cell runs changes what the kernel can open', async ({
  page,
  panel,
  server
}) => {
  const output = await run(page, server, 'watch.py', join(server.state, 'simulated'));
  await expect(output).toContainText('can open 0');
  await panel.statusItem.click();
  await panel.drag(4);
  await expect(panel.sentence).toHaveText('2 of 4 GPUs attached');
  await expect(output).toContainText('can open 2');
  await panel.shot('dragged', true);
  await panel.drag(3);
  await expect(panel.sentence).toHaveText('1 of 4 GPUs attached');
  await expect(output).toContainText(/can open 2[^]*can open 1/);
  await expect(output).toContainText(/^pid (\d+)\s/);
  await server.request(0);
  await expect(output).toContainText(/can open 1[^]*can open 0/);
});

test('dragging changes only the words; releasing makes one request', async ({ page, panel }) => {
  const bodies: string[] = [];
  page.on('request', request => {
    if (request.method() === 'PUT' && request.url().includes('/jupyter-gpu/')) {
      bodies.push(request.postData() ?? '');
    }
  });
  await panel.open();
  await panel.drag(6, false);
  await expect(panel.slider).toHaveAttribute('aria-valuetext', '4 of 4 GPUs');
  await expect(panel.field).toHaveValue('4');
  expect(bodies).toEqual([]);
  await page.mouse.up();
  await expect(panel.sentence).toHaveText('4 of 4 GPUs attached');
  expect(bodies).toEqual(['{"milli":4000,"overrule":true}']);
});

test('slider and field work by keyboard alone', async ({ page, panel, server }) => {
  await panel.open();
  await panel.slider.focus();
  await page.keyboard.press('ArrowRight');
  await expect(panel.slider).toHaveAttribute('aria-valuetext', '0.25 of 4 GPUs');
  await expect(panel.sentence).toHaveText('0.25 of 4 GPUs attached');
  await page.keyboard.press('End');
  await expect(panel.sentence).toHaveText('4 of 4 GPUs attached');
  await page.keyboard.press('Home');
  await expect(panel.sentence).toHaveText('0 of 4 GPUs attached');

  // A held key is one request: generation counts them.
  const generation = async () =>
    ((await server.view()) as unknown as { requested: { generation: number } }).requested
      .generation;
  const before = await generation();
  for (let i = 0; i < 4; i++) {
    await page.keyboard.down('ArrowRight');
  }
  await page.keyboard.up('ArrowRight');
  await expect(panel.sentence).toHaveText('2 of 4 GPUs attached');
  expect(await generation()).toBe(before + 1);

  await page.keyboard.press('Shift+Tab');
  await expect(panel.field).toBeFocused();
});

test('the number field accepts amounts between the steps, and reports invalid ones', async ({
  panel
}) => {
  await panel.open();
  await panel.field.fill('1.5');
  await panel.field.press('Enter');
  await expect(panel.sentence).toHaveText('1.5 of 4 GPUs attached');
  await expect(panel.slider).toHaveAttribute('aria-valuetext', '1.5 of 4 GPUs');
  await expect(panel.cards).toHaveCount(2);
  await panel.field.fill('5');
  await expect(panel.root.getByRole('alert')).toContainText('from 0 to 4');
  expect(await panel.axe()).toEqual([]);
  await panel.field.press('Enter');
  await panel.field.press('Escape');
  await expect(panel.field).toHaveValue('1.5');
  await expect(panel.root.getByRole('alert')).toHaveCount(0);
});

test('code in the kernel, the panel and a second tab agree', async ({
  page,
  panel,
  server,
  context,
  allowed
}) => {
  allowed.push(/^Window name candidate .* already exists/); // two tabs at once: JupyterLab's own, it takes another name
  const second = await context.newPage();
  await second.goto(server.page('lab/workspaces/second?reset'));
  await expect(second.locator('.jp-gpu-StatusItem button')).toBeVisible();
  const output = await run(page, server, 'resize.py', '3');
  await expect(output).toContainText('attached 3');
  await panel.statusItem.click();
  await expect(panel.sentence).toHaveText('3 of 4 GPUs attached');
  await expect(second.locator('.jp-gpu-StatusItem button')).toHaveText('GPU 3/4');
  await panel.button('Release all').click();
  await expect(second.locator('.jp-gpu-StatusItem button')).toHaveText('GPU 0/4');
});

test('the slider in a cell works while the kernel is busy, and the panel follows', async ({
  page,
  panel,
  server
}) => {
  copyFileSync(join(__dirname, 'kernel', 'watch.py'), join(server.work, 'watch.py'));
  server.notebook('analysis.ipynb', [
    'from jupyter_gpu import gpu\ngpu',
    `%run watch.py ${join(server.state, 'simulated')}`
  ]);
  await page.goto(server.page('lab/tree/analysis.ipynb?reset'));
  await kernelReady(page);
  await command(page, 'notebook:run-all-cells');
  const slider = page.locator('.jp-OutputArea').getByRole('slider', { name: 'GPUs' });
  const watched = page.locator('.jp-OutputArea-output', { hasText: 'can open' });
  await expect(watched).toContainText('can open 0');
  await expect(slider).toBeEnabled();
  await slider.focus();
  await page.keyboard.press('End');
  await expect(slider).toHaveAttribute('aria-valuetext', '4 of 4 GPUs');
  await expect(watched).toContainText('can open 4');
  await panel.statusItem.click();
  await expect(panel.sentence).toHaveText('4 of 4 GPUs attached');
  await panel.drag(3);
  await expect(slider).toHaveAttribute('aria-valuetext', '1 of 4 GPUs');
  await expect(watched).toContainText(/can open 4[^]*can open 1/);
  expect(await panel.axe('.jp-OutputArea :has(> input[id^=jupyter-gpu-widget])')).toEqual([]);
  await panel.shot('cell', true);
});

test('work in the kernel appears in the charts', async ({ page, panel, server }) => {
  await server.request(2);
  const output = await run(page, server, 'work.py', '');
  await expect(output).toContainText('working');
  await panel.statusItem.click();
  const load = panel.cards.first().locator('.jp-gpu-Card-load').first();
  await expect(load).toContainText(/[1-9]\d? %/);
  await expect(panel.cards.first()).toContainText(/[1-9][\d.]* of 24 GiB/);
  // Something of the line's colour is on the canvas.
  const painted = () =>
    panel.cards
      .first()
      .locator('canvas')
      .first()
      .evaluate((canvas: HTMLCanvasElement) => {
        const { data } = canvas.getContext('2d')!.getImageData(0, 0, canvas.width, canvas.height);
        let blue = 0;
        for (let i = 0; i < data.length; i += 4) {
          blue += data[i + 3] > 0 && data[i + 2] > data[i] + 60 ? 1 : 0;
        }
        return blue;
      });
  await expect.poll(painted).toBeGreaterThan(20);
  await page.waitForTimeout(Number(process.env.JUPYTER_GPU_CHART_SECONDS ?? 0) * 1000);
  await panel.shot('load', true);
});

test('the panel names the notebook that has a GPU open, and restarts its kernel on request', async ({
  page,
  panel,
  server
}) => {
  await server.request(2);
  const output = await run(page, server, 'hold.py', '');
  await expect(output).toContainText('holding 2');
  await panel.statusItem.click();
  await expect(panel.cards.first()).toContainText('Open in analysis.ipynb');
  await panel.drag(0);
  await expect(panel.sentence).toContainText('analysis.ipynb still has them open');
  await expect(panel.cards.first()).toContainText('Giving back');
  expect(await panel.axe()).toEqual([]);
  await panel.shot('draining');
  const restart = panel.button('Restart kernel of analysis.ipynb…');
  await restart.click();
  await page.locator('.jp-Dialog').getByRole('button', { name: 'Cancel' }).click();
  await expect(panel.sentence).toContainText('still has them open');
  await restart.click();
  await page.locator('.jp-Dialog').getByRole('button', { name: 'Restart' }).click();
  await expect(panel.sentence).toHaveText('0 of 4 GPUs attached');
  await expect(panel.cards).toHaveCount(0);
});

test('a shrink can be undone while it drains', async ({ page, panel, server }) => {
  await server.request(2);
  const output = await run(page, server, 'hold.py', '');
  await expect(output).toContainText('holding 2');
  await panel.statusItem.click();
  await panel.drag(0);
  await panel.button('Keep 2 GPUs after all').click();
  await expect(panel.sentence).toHaveText('2 of 4 GPUs attached');
});

test('a cookie and the XSRF header are enough without the token', async ({
  page,
  panel,
  server
}) => {
  const seen: { status: number; headers: Record<string, string> }[] = [];
  await page.route('**/jupyter-gpu/api/v1/**', async (route, request) => {
    const headers = { ...request.headers() };
    delete headers.authorization;
    const response = await route.fetch({ headers });
    seen.push({ status: response.status(), headers });
    await route.fulfill({ response });
  });
  const heard = listen(page);
  await panel.open();
  await panel.field.fill('1');
  await panel.field.press('Enter');
  await expect(panel.sentence).toHaveText('1 of 4 GPUs attached');
  expect(seen).toHaveLength(1);
  expect(seen[0].status).toBe(200);
  expect(seen[0].headers['x-xsrftoken']).toBeTruthy();
  expect(heard.opened).toBe(1);
  // Without either the server refuses, as for a page of another site.
  const [cookie] = [await page.context().cookies()].map(all =>
    all.map(c => `${c.name}=${c.value}`).join('; ')
  );
  const answer = await fetch(`${server.url}jupyter-gpu/api/v1/request`, {
    method: 'PUT',
    headers: { Cookie: cookie, 'Content-Type': 'application/json' },
    body: '{"milli":0}'
  });
  expect(answer.status).toBe(403);
});
