import { expect, logIn, setLimits, test } from './fixtures';

test('an administrator sees all subjects, searches and sorts them', async ({ as }) => {
  const root = await as('root');
  await expect(root.row('ann')).toContainText('3 GPUs');
  await expect(root.row('ann')).toContainText('set for user ann');
  await expect(root.row('ml')).toContainText('2 members');
  await expect(root.row('helms')).toHaveCount(0);
  await root.page.getByRole('button', { name: 'In use' }).click();
  await expect(root.page.getByRole('columnheader', { name: 'In use' })).toHaveAttribute(
    'aria-sort',
    'ascending'
  );
  await root.search('rit');
  await expect(root.row('rita')).toBeVisible();
  await expect(root.row('ann')).toHaveCount(0);
});

test('the page is clean for screen readers in both themes', async ({ as }) => {
  const root = await as('root');
  await root.axeInBothThemes();
});

test('users are shown page by page, and stay chosen', async ({ as }) => {
  const names = Array.from({ length: 60 }, (_, number) => `page-${10 + number}`);
  await setLimits(names, '1');
  const root = await as('root');
  const pages = root.page.getByRole('navigation', { name: 'Pages' });
  const chosen = root.page.getByRole('checkbox', { name: 'Choose user page-13' });
  await root.search('page-');
  await expect(pages).toContainText('1 to 50 of 60');
  await expect(pages.getByRole('button', { name: 'Previous' })).toBeDisabled();
  await chosen.check();
  await pages.getByRole('button', { name: 'Next' }).click();
  await expect(pages).toContainText('51 to 60 of 60');
  await expect(root.row('page-65')).toBeVisible();
  await expect(root.row('page-13')).toHaveCount(0);
  await expect(root.page.getByRole('form', { name: 'Change all chosen' })).toContainText(
    '1 chosen'
  );
  await pages.getByRole('button', { name: 'Previous' }).click();
  await expect(chosen).toBeChecked();
  await pages.getByRole('button', { name: 'Next' }).click();
  await root.search('page-1');
  await expect(pages).toContainText('1 to 10 of 10');
  await setLimits(names, null);
});

test('a service that cannot answer is reported, and asked again', async ({ as }) => {
  const root = await as('root');
  const body = { message: 'The hub is away.', reason: 'Unavailable', details: {} };
  await root.page.route(/api\/v1\/subjects/, route => route.fulfill({ status: 503, json: body }));
  await root.search('rit');
  await expect(root.page.getByRole('alert')).toContainText('The hub is away.');
  await root.axeInBothThemes();
  await root.page.unroute(/api\/v1\/subjects/);
  await expect(root.row('rita')).toBeVisible({ timeout: 30_000 });
  await expect(root.page.getByRole('alert')).toHaveCount(0);
});

test('names are text, and no script runs', async ({ as }) => {
  const root = await as('root');
  const name = '<img src=x onerror=document.title=1>';
  await root.search('onerror');
  await expect(root.row(name)).toBeVisible();
  await expect(root.page).toHaveTitle('GPU limits');
});

test('without scripts there is a plain page', async ({ browser }) => {
  const page = await logIn(browser, 'root', { javaScriptEnabled: true });
  const plain = await (
    await browser.newContext({
      javaScriptEnabled: false,
      storageState: await page.context().storageState()
    })
  ).newPage();
  await plain.goto(`${process.env.HUB_ADDRESS}/services/gpu/?search=ann`);
  await expect(plain.getByRole('rowheader', { name: 'ann' })).toBeVisible();
});

test('the theme is that of the hub', async ({ as }) => {
  const root = await as('root');
  const html = root.page.locator('html');
  await expect(html).toHaveAttribute('data-bs-theme', 'light');
  await root.page.getByRole('button', { name: 'Toggle dark mode' }).click();
  await expect(html).toHaveAttribute('data-bs-theme', 'dark');
  await root.page.goto(`${process.env.HUB_ADDRESS}/hub/home`);
  await expect(html).toHaveAttribute('data-bs-theme', 'dark');
});
