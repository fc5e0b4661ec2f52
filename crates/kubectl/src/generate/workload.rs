//! `create deployment`, `create job` and `create cronjob`.

use apimachinery::{Object, Value, value};

use super::{Error, Name, put, texts, typed};

/// Options of `create deployment`.
#[derive(Clone, Copy, Debug)]
pub struct Deployment<'a> {
    pub name: Name<'a>,
    pub images: &'a [String],
    pub command: &'a [String],
    /// The port of the first container; negative if not given.
    pub port: i64,
    pub replicas: i64,
}

/// Options of `create job`.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    pub name: Name<'a>,
    pub image: &'a str,
    /// The value of `--from`.
    pub from: &'a str,
    pub command: &'a [String],
}

/// Options of `create cronjob`.
#[derive(Clone, Copy, Debug)]
pub struct CronJob<'a> {
    pub name: Name<'a>,
    pub image: &'a str,
    pub schedule: &'a str,
    /// `OnFailure` if empty.
    pub restart: &'a str,
    pub command: &'a [String],
}

/// Returns a deployment. `suffix` makes the end of a container name whose image name is not a valid one.
pub fn deployment(options: Deployment<'_>, mut suffix: impl FnMut() -> String) -> Result<Value, Error> {
    if options.images.len() > 1 && !options.command.is_empty() {
        return Err(Error::new("cannot specify multiple --image options and command"));
    }
    let mut containers: Vec<Value> = options
        .images
        .iter()
        .map(|image| container(&container_name(image, &mut suffix), image, options.command))
        .collect();
    if options.port >= 0
        && let Some(first) = containers.first_mut()
    {
        put(first, &["ports"], vec![value!({"containerPort": (options.port)})]);
    }
    let labels = value!({"app": (options.name.name)});
    let mut deployment = options.name.object("apps/v1", "Deployment");
    put(&mut deployment, &["metadata", "labels"], labels.clone());
    put(&mut deployment, &["spec", "replicas"], options.replicas);
    put(&mut deployment, &["spec", "selector", "matchLabels"], labels.clone());
    put(&mut deployment, &["spec", "template", "metadata", "labels"], labels);
    put(&mut deployment, &["spec", "template", "spec", "containers"], containers);
    Ok(typed(deployment))
}

/// Checks the options of `create job`.
pub fn validate_job(options: Job<'_>) -> Result<(), Error> {
    if options.image.is_empty() == options.from.is_empty() {
        return Err(Error::new("either --image or --from must be specified"));
    }
    if !options.command.is_empty() && !options.from.is_empty() {
        return Err(Error::new("cannot specify --from and command"));
    }
    Ok(())
}

/// Returns a job that runs an image.
pub fn job(options: Job<'_>) -> Result<Value, Error> {
    validate_job(options)?;
    let mut job = options.name.object("batch/v1", "Job");
    put(&mut job, &["spec", "template", "spec"], pod_spec(options.name.name, options.image, options.command, "Never"));
    Ok(typed(job))
}

/// Returns a job as the controller of a CronJob would create it, with `cron_job` as its owner.
pub fn job_from_cron_job(name: Name<'_>, cron_job: &Value) -> Result<Value, Error> {
    let mut job = name.object("batch/v1", "Job");
    let template = |path: &[&str]| cron_job.at(&["spec", "jobTemplate"]).and_then(|template| template.at(path));
    let mut annotations: Object = [("cronjob.kubernetes.io/instantiate", "manual")].into_iter().collect();
    for (key, value) in
        template(&["metadata", "annotations"]).and_then(Value::as_object).into_iter().flat_map(Object::iter)
    {
        annotations.insert(key, value.clone());
    }
    put(&mut job, &["metadata", "annotations"], annotations);
    if let Some(labels) = template(&["metadata", "labels"]) {
        put(&mut job, &["metadata", "labels"], labels.clone());
    }
    let owner = value!({
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "name": (cron_job.str_at(&["metadata", "name"]).unwrap_or_default()),
        "uid": (cron_job.str_at(&["metadata", "uid"]).unwrap_or_default()),
        "controller": true
    });
    put(&mut job, &["metadata", "ownerReferences"], vec![owner]);
    if let Some(spec) = template(&["spec"]) {
        put(&mut job, &["spec"], spec.clone());
    }
    Ok(typed(job))
}

/// Returns a cron job.
pub fn cron_job(options: CronJob<'_>) -> Value {
    let restart = if options.restart.is_empty() { "OnFailure" } else { options.restart };
    let mut cron_job = options.name.object("batch/v1", "CronJob");
    let pod = pod_spec(options.name.name, options.image, options.command, restart);
    put(&mut cron_job, &["spec", "schedule"], options.schedule);
    put(&mut cron_job, &["spec", "jobTemplate", "metadata", "name"], options.name.name);
    put(&mut cron_job, &["spec", "jobTemplate", "spec", "template", "spec"], pod);
    typed(cron_job)
}

fn pod_spec(name: &str, image: &str, command: &[String], restart: &str) -> Value {
    value!({"containers": [(container(name, image, command))], "restartPolicy": restart})
}

fn container(name: &str, image: &str, command: &[String]) -> Value {
    let mut container = value!({"name": name, "image": image});
    if !command.is_empty() {
        put(&mut container, &["command"], texts(command));
    }
    container
}

/// Returns the last part of an image's name, without tag and digest, as a container name.
fn container_name(image: &str, suffix: &mut impl FnMut() -> String) -> String {
    let name = image.rsplit('/').next().unwrap_or_default();
    let name = name.split(':').next().unwrap_or_default();
    let name = name.split('@').next().unwrap_or_default();
    if name.contains(['_', '.']) { format!("{}-{}", name.replace(['_', '.'], "-"), suffix()) } else { name.to_owned() }
}
