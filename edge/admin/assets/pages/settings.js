// Settings with their origins, listeners and certificates.

import { api } from '../client.js'
import { h, put, table, toast } from '../dom.js'
import { short, time } from '../format.js'

export default async function settings (main, { may, isHere }) {
  const body = h('div', { class: 'grid' })
  const reload = h('button', {
    onclick: async () => {
      try {
        const { changed, needs_restart: later } = await api.post('/config/reload')
        toast(`Reloaded. ${changed.length > 0 ? `Applied: ${changed.join(', ')}.` : 'No setting changed.'}${later.length > 0 ? ` Restart to apply ${later.join(', ')}.` : ''}`)
        await load()
      } catch (problem) { toast(problem.message, true) }
    }
  }, 'Reload files')
  put(main, h('div', { class: 'head' }, h('h1', {}, 'Configuration'), may('config:write') && reload), body)

  async function edit (setting) {
    const input = h('input', { value: JSON.stringify(setting.value), 'aria-label': setting.name, spellcheck: 'false' })
    const dialog = h('dialog', {}, h('form', { method: 'dialog' },
      h('h2', {}, setting.name), input,
      h('p', { class: 'soft' }, 'A JSON value. It overrides the configuration file and the environment, and is stored in the records.'),
      h('div', { class: 'row' }, h('button', { class: 'primary', value: 'set' }, 'Apply'),
        setting.origin === 'api' && h('button', { value: 'reset' }, 'Remove override'), h('button', { value: '' }, 'Cancel'))))
    dialog.addEventListener('close', async () => {
      dialog.remove()
      if (!dialog.returnValue) return
      try {
        await api.patch('/config', { [setting.name]: dialog.returnValue === 'reset' ? null : JSON.parse(input.value) })
        toast(`${setting.name} applied.`)
        await load()
      } catch (problem) { toast(problem.message, true) }
    })
    document.body.append(dialog)
    dialog.showModal()
  }

  async function load () {
    const [{ settings }, { listeners }, { certificates }] = await Promise.all([
      api.get('/config'),
      may('stats:read') ? api.get('/listeners') : { listeners: [] },
      may('stats:read') ? api.get('/certificates') : { certificates: [] }
    ])
    if (!isHere()) return
    const sum = counts => Object.values(counts).reduce((all, one) => all + one, 0)
    put(body,
      h('section', { class: 'card span12' }, h('div', { class: 'top' }, h('h2', {}, 'Listeners')), table([
        ['Protocol', one => one.protocol],
        ['Address', one => h('span', { class: 'mono' }, one.address)],
        ['Access mode', one => one.mode],
        ['Engine', one => one.engine || '–'],
        ['Requests', one => short(sum(one.traffic.requests)), 'num'],
        ['Open connections', one => short(one.traffic.connections_open), 'num']
      ], listeners, 'Listeners')),
      certificates.length > 0 && h('section', { class: 'card span12' }, h('div', { class: 'top' }, h('h2', {}, 'Certificates')), table([
        ['Host name', one => one.name || '–'], ['Expires', one => time(one.expires)]
      ], certificates, 'Certificates')),
      h('section', { class: 'card span12' }, h('div', { class: 'top' }, h('h2', {}, 'Settings'), h('span', { class: 'soft' }, 'Settings with a Change button need no restart.')), table([
        ['Setting', one => h('span', { class: 'mono' }, one.name)],
        ['Value', one => h('span', { class: 'mono' }, JSON.stringify(one.value))],
        ['Origin', one => h('span', { class: one.origin === 'default' ? 'soft' : 'tag' }, one.origin), 'wide'],
        ['', one => one.reloadable && may('config:write') && h('button', { class: 'small', onclick: () => edit(one) }, 'Change'), 'actions']
      ], settings, 'Settings')))
  }
  await load()
}
