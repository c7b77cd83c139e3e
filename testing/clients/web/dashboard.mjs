// Tests the dashboard in headless Chromium: every page with its changes, the keyboard, both themes under axe-core, a
// phone, budgets, and neither console errors nor violations of the content security policy.
//
//     node dashboard.mjs HOST:PORT
//
// HOST:PORT takes announces; the dashboard is at 127.0.0.1:6970, and its token in TIDEGATE_ADMIN_TOKEN. The tracker has a
// file of the torrent TIDEGATE_TORRENT, payload.bin. Each file of
// dashboard/ tests one area; they run in this order, in one browser.

import assert from 'node:assert/strict'
import process from 'node:process'
import { start } from './dashboard/browser.mjs'
import signIn from './dashboard/sign-in.mjs'
import overview from './dashboard/overview.mjs'
import torrents from './dashboard/torrents.mjs'
import access from './dashboard/access.mjs'
import webhooks from './dashboard/webhooks.mjs'
import settings from './dashboard/settings.mjs'
import log from './dashboard/log.mjs'
import keyboard from './dashboard/keyboard.mjs'
import accessibility from './dashboard/accessibility.mjs'
import phone from './dashboard/phone.mjs'
import nodes from './dashboard/nodes.mjs'
import site from './dashboard/site.mjs'
import session from './dashboard/session.mjs'
import policy from './dashboard/policy.mjs'
import upgrade from './dashboard/upgrade.mjs'

const areas = { signIn, overview, torrents, access, webhooks, settings, log, keyboard, accessibility, phone, nodes, site, session, policy, upgrade }

const dashboard = await start({
  tracker: process.argv[2],
  admin: process.env.TIDEGATE_ADMIN ?? '127.0.0.1:6970',
  token: process.env.TIDEGATE_ADMIN_TOKEN
})
for (const [name, test] of Object.entries(areas)) {
  console.log(name)
  await test(dashboard)
  // Errors that an area expects, it has taken.
  assert.deepEqual(dashboard.page.errors, [], name)
}
await dashboard.page.close()
process.exit(0)
