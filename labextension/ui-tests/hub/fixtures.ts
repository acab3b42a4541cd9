/** Fixtures: a person who is logged in to the hub, on the page of GPU limits, which must stay free of errors. */
import AxeBuilder from '@axe-core/playwright';
import { Browser, expect, Locator, Page, test as base } from '@playwright/test';

export { expect };

const HUB = process.env.HUB_ADDRESS!;
const PASSWORD = process.env.HUB_PASSWORD!;

/** The page of one person. */
export class LimitsPage {
  readonly errors: string[] = [];
  private checking = false;

  constructor(readonly page: Page) {
    page.on('pageerror', error => this.errors.push(String(error)));
    page.on('console', message => {
      // Violations of the policy are reported here; axe-core itself tries styles of its own.
      if (
        !this.checking &&
        message.type() === 'error' &&
        !/status of (4\d\d|503)/.test(message.text())
      ) {
        this.errors.push(message.text());
      }
    });
  }

  /** Open the page; `scripts` are there once their part is shown. */
  async open(): Promise<void> {
    await this.page.goto(`${HUB}/services/gpu/`);
    await this.page.locator('#gpu-limits:not([hidden])').waitFor();
  }

  /** Search for a name. */
  async search(name: string): Promise<void> {
    await this.page.getByRole('searchbox', { name: 'Name' }).fill(name);
  }

  /** The button that changes the limit of a subject. */
  limit(subject: string): Locator {
    return this.page.getByRole('button', { name: `Change the limit of ${subject}, now` });
  }

  /** Type a limit for a subject, and press a key. */
  async type(subject: string, text: string, key: 'Enter' | 'Escape'): Promise<void> {
    await this.limit(subject).click();
    const field = this.page.getByRole('textbox', { name: `Limit of ${subject}` });
    await field.fill(text);
    await field.press(key);
  }

  /** The row of a subject. */
  row(name: string): Locator {
    return this.page.getByRole('row').filter({
      has: this.page
        .getByRole('rowheader')
        .filter({ has: this.page.getByText(name, { exact: true }) })
    });
  }

  /** The violations that axe-core finds on the whole page, in words. */
  async axe(): Promise<string[]> {
    this.checking = true;
    const { violations } = await new AxeBuilder({ page: this.page }).analyze();
    this.checking = false;
    return violations.map(({ id, nodes }) => `${id}: ${nodes.map(node => node.html).join(' ')}`);
  }

  /** Check both themes. */
  async axeInBothThemes(): Promise<void> {
    for (const theme of ['light', 'dark']) {
      await this.page.evaluate(name => (document.documentElement.dataset.bsTheme = name), theme);
      await this.page.waitForTimeout(300); // colours change slowly
      expect(await this.axe(), theme).toEqual([]);
    }
  }
}

/** The limit of a subject of this hub, as the service tells it to a program. */
export async function readSubject(
  kind: string,
  name: string
): Promise<{ own: { fields: Record<string, unknown> } | null }> {
  const query = new URLSearchParams({ kind, name, hub: process.env.HUB_NAME! });
  const headers = { Authorization: `token ${process.env.HUB_TOKEN}` };
  const answer = await fetch(`${HUB}/services/gpu/api/v1/subject?${query}`, { headers });
  return (await answer.json()) as { own: { fields: Record<string, unknown> } | null };
}

/** Set the limit of a user, as a program does; `null` removes it. */
export async function setLimit(name: string, max: string | null): Promise<void> {
  await setLimits([name], max);
}

/** Set the limits of users. */
export async function setLimits(names: readonly string[], max: string | null): Promise<void> {
  const hub = process.env.HUB_NAME;
  const edits = names.map(name => ({ subject: { kind: 'User', name, hub }, set: max && { max } }));
  const answer = await fetch(`${HUB}/services/gpu/api/v1/limits/bulk`, {
    method: 'POST',
    headers: {
      Authorization: `token ${process.env.HUB_TOKEN}`,
      'Content-Type': 'application/json'
    },
    body: JSON.stringify({ edits })
  });
  expect(await answer.json()).toMatchObject({ counts: { refused: 0 } });
}

/** Log in by the hub's form. */
export async function logIn(browser: Browser, name: string, options = {}): Promise<Page> {
  const page = await (await browser.newContext(options)).newPage();
  await page.goto(`${HUB}/hub/login?next=%2Fhub%2Fhome`);
  await page.getByLabel('Username').fill(name);
  await page.getByLabel('Password').fill(PASSWORD);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.waitForURL(/\/hub\/home/);
  return page;
}

export const test = base.extend<{ as: (name: string) => Promise<LimitsPage> }>({
  as: async ({ browser }, use) => {
    const opened: LimitsPage[] = [];
    await use(async name => {
      const limits = new LimitsPage(await logIn(browser, name));
      opened.push(limits);
      await limits.open();
      return limits;
    });
    for (const { page, errors } of opened) {
      expect(errors).toEqual([]);
      await page.context().close();
    }
  }
});
