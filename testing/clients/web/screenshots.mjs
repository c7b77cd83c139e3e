// Takes pictures of the dashboard of a real tracker, wide and narrow, light and dark:
//
//     node screenshots.mjs HOST:PORT FOLDER STATE [PAGE...]
//
// HOST:PORT is the admin listener, its token is in TIDEGATE_ADMIN_TOKEN. Pictures are FOLDER/PAGE-SIZE-THEME-STATE.png;
// without pages, of all in the navigation. The state `busy` first makes keys, bans, lists, tokens and webhooks.

import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import process from 'node:process'
import { setTimeout as sleep } from 'node:timers/promises'
import { start } from './dashboard/browser.mjs'

const [admin, folder, state, ...wanted] = process.argv.slice(2)
const token = process.env.TIDEGATE_ADMIN_TOKEN
const dashboard = await start({ admin, token })
const { page, call, click, write } = dashboard
const SIZES = { wide: [1440, 900, false], narrow: [390, 844, true] }
const WALL = [2560, 1440, false]

async function make (path, body) {
  const answer = await call('POST', path, body)
  assert.ok(answer.ok, `${path}: ${answer.status} ${await answer.clone().text()}`)
  return answer.json()
}

async function populate () {
  const inDays = days => Math.floor(Date.now() / 1000) + 86400 * days
  for (const [at, name] of ['ada', 'brian', 'clara', 'dennis', 'edsger', 'frances', 'grace', 'hedy'].entries()) {
    await make('/keys', { name, torrents: at % 3 === 0 ? 50 : 0, addresses: at % 2 === 0 ? 4 : 0, ...(at % 4 === 3 && { expires: inDays(90) }) })
  }
  for (const [network, reason, days] of [['192.0.2.128/25', 'scraper', 7], ['198.51.100.77/32', 'forged uploads', 0], ['2001:db8:bad::/48', 'flood', 1]]) {
    await make('/bans', { network, reason, ...(days > 0 && { expires: inDays(days) }) })
  }
  const hashes = Array.from({ length: 240 }, (_, at) => createHash('sha1').update(`denied ${at}`).digest('hex'))
  await make('/lists/deny', hashes)
  await make('/tokens', { name: 'grafana', scopes: ['stats:read'] })
  await make('/tokens', { name: 'website', scopes: ['keys:read', 'keys:write'], expires: inDays(365) })
  await make('/webhooks', { url: 'https://hooks.example.org/tidegate', events: ['ban', 'warning', 'reload'] })
}

async function signIn (secret) {
  await page.go(`http://${admin}/`)
  await page.until('document.querySelector("input[name=token]")', 'the form')
  await write('input[name=token]', secret)
  await click('Sign in')
}

/** Pictures of what is shown now. `prepare` makes the page show it in each size and theme. */
async function pictures (name, prepare = () => {}, sizes = SIZES, high = 4000) {
  for (const [size, [width, height, isPhone]] of Object.entries(sizes)) {
    for (const theme of ['light', 'dark']) {
      await page.size(width, height, isPhone)
      await page.colours(theme)
      await prepare()
      // Charts and tables follow the size, transitions end.
      await sleep(400)
      await page.picture(join(folder, `${name}-${size}-${theme}-${state}.png`), high)
    }
  }
}

async function visit (path) {
  await page.value(`location.hash = '#/${path}'`)
  await page.until('document.querySelectorAll("main h1, main .card").length > 0', path)
  await sleep(700)
}

if (state === 'busy') await populate()
await signIn(token)
await page.until('document.querySelector(".shell")', 'the first page')
const all = (await dashboard.pages()).map(([path]) => path)
const paths = wanted.length > 0 ? wanted : all
for (const path of paths) await pictures(path, () => visit(path))
if (state === 'busy') {
  const busiest = (await (await call('GET', '/torrents?sort=seeders&limit=1')).json()).torrents[0]
  // Further down there are only more of its peers.
  await pictures('torrent', () => visit(`torrent/${busiest.info_hash}`), SIZES, 1300)
  await pictures('overview', () => visit('overview'), { wall: WALL })
  // For the documentation: what is seen first.
  await pictures('lead', () => visit('overview'), { wide: [1440, 900, false] }, 1130)
  await pictures('lead', () => visit('overview'), { narrow: [390, 844, true] }, 1400)
}
await page.close()
process.exit(0)
