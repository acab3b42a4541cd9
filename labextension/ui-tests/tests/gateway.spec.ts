/** Notebooks whose kernels run on another server: no GPU is shown that the kernel cannot have. */
import { expect, kernelReady, command, Panel, test } from './fixtures';
import { Program } from './fronts';
import { JupyterServer } from './server';

const TOKEN = 'of-the-gateway';

// JupyterLab's own, when kernels are behind a gateway.
test.use({
  allowed: async ({}, use) =>
    use([/Sec-WebSocket-Protocol/, /status of 403/, /ERR_NETWORK_CHANGED/])
});

/** A server with four GPUs of its own, whose kernels run at `url`. */
function front(url: string, token: string): Promise<JupyterServer> {
  return new JupyterServer({
    gpus: 4,
    args: [`--gateway-url=${url}`, `--GatewayClient.auth_token=${token}`]
  }).start();
}

async function show(panel: Panel): Promise<void> {
  panel.server.notebook('far.ipynb', ['from jupyter_gpu import gpu\ngpu', 'gpu.widget()']);
  await panel.page.goto(panel.server.page('lab/tree/far.ipynb?reset'));
  await kernelReady(panel.page);
  await command(panel.page, 'notebook:run-all-cells');
}

test('the slider shows the GPUs of the kernel’s server; panel and toolbar name their own', async ({
  page
}) => {
  test.setTimeout(120_000);
  const back = await new JupyterServer({ gpus: 2, app: 'server' }).start();
  const server = await front(back.url, back.token);
  const panel = new Panel(page, server);
  try {
    await show(panel);
    const cell = page.locator('.jp-OutputArea').first();
    const slider = cell.getByRole('slider', { name: 'GPUs for the kernel’s server' });
    await expect(slider).toHaveAttribute('aria-valuetext', '0 of 2 GPUs');
    await slider.focus();
    await page.keyboard.press('End');
    await expect(cell.getByRole('status').first()).toContainText('2 of 2 GPUs attached');
    await back.see('both', view => view.amounts.attached === 2000);
    expect((await server.view()).amounts.requested).toBe(0);
    await expect(page.locator('.jp-gpu-ToolbarItem button')).toHaveCount(0);
    await panel.statusItem.click();
    await expect(panel.root).toContainText('behind a gateway');
    expect(await panel.axe()).toEqual([]);
    await panel.shot('gateway', true);
  } finally {
    await page.close(); // before what it talks to
    await server.dispose();
    await back.dispose();
  }
});

test('behind a gateway without jupyter-gpu, a cell says that there is no server with it', async ({
  page
}) => {
  test.setTimeout(120_000);
  const gateway = await new Program().start(
    port => [
      ...['-m', 'kernel_gateway', '--ip=127.0.0.1', `--port=${port}`],
      `--KernelGatewayApp.auth_token=${TOKEN}`
    ],
    'api'
  );
  const server = await front(gateway.url, TOKEN);
  try {
    await show(new Panel(page, server));
    const outputs = page.locator('.jp-OutputArea-output');
    await expect(outputs.first()).toContainText('GPU: No Jupyter server was found');
    await expect(outputs.nth(1).getByRole('alert')).toContainText('No Jupyter server was found');
    await expect(outputs.nth(1).getByRole('slider')).toBeDisabled();
  } finally {
    await page.close(); // before what it talks to
    await server.dispose();
    gateway.dispose();
  }
});
