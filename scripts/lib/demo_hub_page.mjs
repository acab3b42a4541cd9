/** Steps of the demo's check in the pages of a hub, as its users do them. */
import { NotebookPage, say, THEMES, WAIT } from './demo_page.mjs';

const { HUB_ADDRESS, HUB_PASSWORD } = process.env;

/** Logs in by the hub's form; the page that comes then. */
async function logIn(context, name, next) {
  const page = await context.newPage();
  await page.goto(`${HUB_ADDRESS}/hub/login?next=${encodeURIComponent(next)}`);
  await page.getByLabel('Username').fill(name);
  await page.getByLabel('Password').fill(HUB_PASSWORD);
  await page.getByRole('button', { name: 'Sign in' }).click();
  return page;
}

/** Logs in, starts the user's server, and opens its notebook. */
export async function server(session, name, images) {
  const page = await logIn(await session(), name, '/hub/spawn');
  await page.locator('.jp-Notebook').waitFor({ timeout: 3 * WAIT }); // a pod starts, and a server in it
  const address = page.url();
  await page.close();
  const notebook = await NotebookPage.open(page.context(), address, images);
  say(`the server of ${name} runs in a pod, and its notebook is open`);
  return notebook;
}

/** Waits until the slider of a notebook's page ends at `gpus`; when that was. */
export function end({ slider }, gpus) {
  return slider.evaluate(
    (input, wanted) =>
      new Promise(found => {
        const observer = new MutationObserver(look);
        function look() {
          if (parseFloat(input.getAttribute('aria-valuetext').split(' of ')[1]) === wanted) {
            observer.disconnect();
            found(Date.now());
          }
        }
        observer.observe(input, { attributes: true });
        look();
      }),
    gpus
  );
}

/** Logs in, and opens the page *GPU limits* in the menu *Services*. */
async function limitsPage(session, name) {
  const page = await logIn(await session(), name, '/hub/home');
  await page.getByRole('button', { name: 'Services' }).click();
  await page.getByRole('link', { name: 'GPU limits' }).click();
  await page.locator('#gpu-limits:not([hidden])').waitFor();
  say(`${name} opened GPU limits in the menu Services of the hub`);
  return page;
}

/** The page of a user, who sees the own limit. */
export const ownPage = limitsPage;

/** The page of an administrator. */
export async function administrator(session) {
  return new Administrator(await limitsPage(session, 'root'));
}

class Administrator {
  constructor(page) {
    this.page = page;
  }

  /** The row of a subject; not that of the plain page, which is there until the code shows the table. */
  row(name) {
    const head = this.page.getByRole('rowheader').filter({ has: this.page.getByText(name, { exact: true }) });
    return this.page.locator('#gpu-limits:not([hidden])').getByRole('row').filter({ has: head });
  }

  /** Sets the limit of a subject as text; says yes to a question with `question` in it. When it was sent. */
  async give(subject, amount, question) {
    const { page } = this;
    await page.bringToFront();
    await page.getByRole('button', { name: `Change the limit of ${subject}, now` }).click();
    const field = page.getByRole('textbox', { name: `Limit of ${subject}` });
    await field.fill(amount);
    let sent = Date.now();
    await field.press('Enter');
    if (question) {
      const dialog = page.getByRole('dialog', { name: 'Save this change?' });
      await dialog.getByText(question).first().waitFor();
      sent = Date.now();
      await dialog.getByRole('button', { name: 'Save' }).click();
    }
    await page.locator('.gpu-Outcome [role=status]').getByText('Saved.').waitFor();
    return sent;
  }
}

/** A picture of the upper part of the panel: slider, limit and buttons. */
export async function panelPicture({ page, panel }, images, name) {
  const { x, y, width } = await panel.boundingBox();
  const last = await panel.locator('.jp-gpu-Buttons').first().boundingBox();
  await page.screenshot({ path: `${images}/${name}.png`, clip: { x, y, width, height: last.y + last.height + 10 - y } });
}

/** The panel in both themes. */
export async function panelPictures(images, ann) {
  for (const [name, theme] of [...THEMES].reverse()) {
    await ann.theme(theme);
    await ann.page.waitForTimeout(1000);
    await panelPicture(ann, images, `hub-panel-${name}`);
  }
}

/** The administrator's page in both themes, and a user's own, while two users have GPUs. */
export async function pagePictures(images, root, ann, bob) {
  await bob.ask('from jupyter_gpu import gpu; gpu.resize(1); print("null")');
  for (const [name] of THEMES) {
    await root.page.evaluate(chosen => localStorage.setItem('jupyterhub-bs-theme', chosen), name);
    await root.page.reload();
    await root.row('bob').getByText('1 GPU', { exact: true }).first().waitFor();
    await root.page.screenshot({ path: `${images}/hub-page-${name}.png`, fullPage: true });
  }
  const own = await ann.page.context().newPage();
  await own.setViewportSize({ width: 900, height: 500 });
  await own.goto(`${HUB_ADDRESS}/services/gpu/`);
  await own.getByText('GPU-hours in the last').waitFor();
  await own.screenshot({ path: `${images}/hub-own.png` });
  await own.close();
}
